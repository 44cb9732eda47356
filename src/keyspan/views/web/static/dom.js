// Small helpers: elements, numbers, and asking the API. Nothing is ever made of markup in data: text stays text.

/** An element: name, attributes (`on...` are listeners, `class`, `text`), children. */
export function h(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** The same in SVG. */
export function s(name, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "text") element.textContent = value;
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** A number as a person writes it; nothing for nothing. */
export function number(value, digits = 3) {
  if (value === null || value === undefined) return "";
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value)) return value.toLocaleString("en");
  const size = Math.abs(value);
  return size >= 1000 ? Math.round(value).toLocaleString("en") : size >= 0.001 || size === 0 ? String(+value.toPrecision(digits)) : value.toExponential(1);
}

/** `estimate [low, high]`, `?` for an end that is open. */
export function interval(value) {
  if (!value || value.estimate === null) return "not reached";
  const end = (v) => (v === null ? "?" : number(v));
  return `${number(value.estimate)} [${end(value.low)}, ${end(value.high)}]`;
}

/** JSON of the API; an Error with the server's words where it refuses. */
export async function ask(path, parameters = {}) {
  const given = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const answer = await fetch(`api/${path}?${new URLSearchParams(given)}`, { cache: "no-store" });
  const data = await answer.json();
  if (!answer.ok) throw new Error(typeof data.detail === "string" ? data.detail : "The server refused this.");
  return data;
}

/** A table in a frame that scrolls. columns: [title, key or function, number?] */
export function table(columns, rows, { caption, attributes = () => ({}), label } = {}) {
  const cell = (row, [, key, numeric]) => {
    const value = typeof key === "function" ? key(row) : row[key];
    const inner = value instanceof Node ? value : document.createTextNode(typeof value === "number" ? number(value) : value ?? "");
    return h("td", { class: numeric ? "n" : null }, inner);
  };
  return h("div", { class: "wide", tabindex: "0", role: "region", "aria-label": label ?? caption ?? "Table" },
    h("table", {},
      caption ? h("caption", { text: caption }) : null,
      h("thead", {}, h("tr", {}, columns.map(([title, , numeric]) => h("th", { scope: "col", class: numeric ? "n" : null, text: title })))),
      h("tbody", {}, rows.map((row) => h("tr", attributes(row), columns.map((column) => cell(row, column)))))));
}
