// Design: sliders for the sizes; law, explicit weights and measured points move along.
import { chart } from "./charts.js";
import { ask, h, interval, number, table } from "./dom.js";

const DEFAULTS = { items: 128, d_model: 16, edges: "", target: 0.99, heads: "" };
const SLIDERS = [
  { name: "items", label: "Items m", min: 2, max: 2 ** 20, log: true, note: "things that are related" },
  { name: "d_model", label: "Width d_model", min: 1, max: 2 ** 14, log: true, note: "dimensions of an item's vector" },
  { name: "edges", label: "Edges m′", min: 1, max: 2 ** 24, log: true, note: "relations; as many as items unless moved", free: true },
  { name: "target", label: "Target F1", min: 0.5, max: 1, step: 0.005, note: "measured points move with it" },
  { name: "heads", label: "Heads h", min: 1, max: 1024, log: true, note: "chosen by the design unless moved", free: true },
];
const STEPS = 400;

export function view(main, parameters, navigate) {
  const values = { ...DEFAULTS };
  for (const key of Object.keys(DEFAULTS)) if (parameters.has(key)) values[key] = parameters.get(key);
  const out = h("div", { id: "design-out", "aria-live": "off" }, h("p", { text: "Asking." }));
  const inputs = SLIDERS.map((slider) => control(slider, values, changed));
  main.replaceChildren(h("h2", { text: "What should I build?" }),
    h("div", { class: "columns" }, h("form", { onsubmit: (event) => event.preventDefault() }, h("fieldset", { "aria-label": "Sizes" }, inputs.map((c) => c.element),
      h("button", { type: "button", text: "As at first", onclick: () => { Object.assign(values, DEFAULTS); changed(); } }))), out));

  let busy = false, again = false;
  async function changed() {
    navigate("design", Object.fromEntries(Object.entries(values).filter(([key, value]) => String(value) !== String(DEFAULTS[key]))));
    if (busy) { again = true; return; }
    busy = true;
    try {
      const answer = await ask("design", values);
      for (const c of inputs) c.show(values, answer);
      out.replaceChildren(...shown(answer, columnWidth(out)));
    } catch (error) {
      out.replaceChildren(h("p", { class: "fails", role: "alert", text: error.message }));
    }
    busy = false;
    if (again) { again = false; changed(); }
  }
  changed();
  let version = null;
  return { update: (state) => { if (version !== null && version !== state.version) changed(); version = state.version; } };
}

/** A range and a number that say the same. The range is logarithmic where sizes are. */
function control(slider, values, changed) {
  const { name, label, min, max, log, step, note, free } = slider;
  const place = (v) => (log ? (Math.log(v / min) / Math.log(max / min)) * STEPS : v);
  const value = (p) => (log ? Math.round(min * (max / min) ** (p / STEPS)) : +(+p).toFixed(4));
  const range = h("input", { type: "range", id: `${name}-range`, min: log ? 0 : min, max: log ? STEPS : max, step: log ? 1 : step, "data-slider": name });
  const exact = h("input", { type: "number", id: `${name}-exact`, min, max: log ? null : max, step: log ? 1 : step, "aria-label": `${label}, exactly` });
  const set = (v) => { values[name] = v; changed(); };
  range.addEventListener("input", () => set(value(+range.value)));
  exact.addEventListener("change", () => { const v = +exact.value; if (Number.isFinite(v) && v >= min) set(log ? Math.round(v) : Math.min(v, max)); else if (free && exact.value === "") set(""); });
  const reset = free ? h("button", { type: "button", text: "auto", "aria-label": `auto: ${label}`, onclick: () => set("") }) : null;
  const element = h("div", { class: "slider" }, h("label", { for: `${name}-range`, text: label }), range, exact, h("small", {}, note, reset ? " " : null, reset));
  const show = (given, answer) => {
    const v = +answer.asked[name];
    if (document.activeElement !== range || free) range.value = place(v);
    range.setAttribute("aria-valuetext", number(v));
    if (document.activeElement !== exact) exact.value = v;
    if (reset) reset.disabled = given[name] === "";
  };
  return { element, show };
}

/** Of a chart: half of the place there is, or all of it where that is narrow. */
function columnWidth(out) {
  const all = out.clientWidth || 560;
  return all > 2 * 390 ? all / 2 - 20 : all;
}

function shown({ asked, design, here, along_items, along_d_model }, wide) {
  const budget = design.key_budget;
  const facts = [
    ["Heads × d_key", `${number(here.heads)} × ${number(here.d_key)}`, true],
    ["Key budget D_K", number(here.key_budget), true],
    ["Likely (design)", interval(budget)],
    ["Certain", number(here.construction)],
    ["Necessary", number(here.lower_bound)],
    ["Solver", here.solver === null ? "too few heads" : number(here.solver)],
    ["Parameters", number(here.parameters)],
    ["Bits per parameter", number(design.bits / here.parameters)],
  ];
  const answer = h("dl", { class: "answer", id: "answer" }, facts.map(([name, value, main]) => h("div", { class: main ? "main" : null }, h("dt", { text: name }), h("dd", { text: value }))));
  const notes = [...design.notes, ...(here.wider_than_rows ? ["d_key is larger than d_model here: so wide a head holds nothing more; take more heads"] : [])];
  return [answer, h("ul", { class: "dim" }, notes.map((note) => h("li", { text: note }))),
    h("div", { class: "charts" }, curve("Key budget along items", along_items, asked, here, wide), curve("Key budget along d_model", along_d_model, asked, here, wide)),
    h("h3", { text: "Other numbers of heads" }),
    table([["heads", "heads", true], ["d_key", "d_key", true], ["D_K", "key_budget", true], ["parameters", "parameters", true], ["bits per parameter", "bits_per_parameter", true], ["solver needs", (a) => (a.solver_capacity === null ? "more heads" : number(a.solver_capacity)), true], ["feasible", (a) => (a.feasible ? "yes" : "no")]], design.alternatives, { label: "Other numbers of heads" }),
    h("h3", { text: "Bounds, with their status and source" }),
    table([["bound", "name"], ["about", "about"], ["value", (b) => (b.value === null ? "none" : number(b.value)), true], ["status", "status"], ["says", "note"], ["holds for", "validity"], ["source", "source"]], design.bounds, { label: "Bounds" })];
}

const COLOURS = { law: 6, solver: 3, lower: 7, certain: 4 };
const MEASURED = [0, 1, 2, 5];

function curve(title, along, asked, here, wide) {
  const series = along.lines.map((line) => ({ name: line.name, kind: line.style, colour: COLOURS[line.id], points: line.points }));
  const names = [...new Set(along.measured.map((p) => p.series))];
  names.forEach((name, k) => {
    const points = along.measured.filter((p) => p.series === name).map((p) => ({ ...p, text: `${p.heads} heads` }));
    series.push({ name: `measured, ${name}`, kind: "points", colour: MEASURED[k % MEASURED.length], mark: k, points });
  });
  series.push({ name: "this design", kind: "points", colour: 6, mark: "star", points: [{ x: along.at, y: here.key_budget, text: `${here.heads} heads` }] });
  return chart({ title, x: { label: along.label, log: true }, y: { label: `D_K for F1 ${asked.target}`, log: true }, series, wide, key: title });
}
