// Charts in SVG: lines with intervals, theory dashed, explicit weights dotted, a marker of its own for every series, the
// points in reach of the arrow keys, and a table of the data below each.
import { h, number, s, table } from "./dom.js";

const HIGH = 340, LEFT = 54, RIGHT = 12, TOP = 10, BOTTOM = 42;
const STAR = 6, DASH = 7;
const MARKS = [
  (x, y) => s("circle", { cx: x, cy: y, r: 3.6 }),
  (x, y) => s("rect", { x: x - 3.3, y: y - 3.3, width: 6.6, height: 6.6 }),
  (x, y) => s("path", { d: `M${x} ${y - 4.2}L${x + 4} ${y + 3.2}L${x - 4} ${y + 3.2}Z` }),
  (x, y) => s("path", { d: `M${x} ${y - 4.6}L${x + 4.6} ${y}L${x} ${y + 4.6}L${x - 4.6} ${y}Z` }),
  (x, y) => s("path", { d: `M${x} ${y + 4.2}L${x + 4} ${y - 3.2}L${x - 4} ${y - 3.2}Z` }),
  (x, y) => s("path", { d: `M${x - 4} ${y - 1.4}h2.6v-2.6h2.8v2.6h2.6v2.8h-2.6v2.6h-2.8v-2.6h-2.6z` }),
  (x, y) => s("path", { d: Array.from({ length: 10 }, (_, k) => { const r = k % 2 ? 3 : 7.5, a = (Math.PI * k) / 5; return `${k ? "L" : "M"}${(x + r * Math.sin(a)).toFixed(2)} ${(y - r * Math.cos(a)).toFixed(2)}`; }).join("") + "Z" }),
  (x, y) => s("rect", { x: x - 6, y: y - 1, width: 12, height: 2 }),
];

/**
 * spec: { title, x: {label, log, min, max}, y: {label, log, min, max}, series, lines, wide, key }
 * series: [{ name, kind: "solid"|"dashed"|"dotted"|"points", colour, mark: "star"|"dash"|number, points: [{x, y, low, high, text}] }]
 * lines: vertical ones, [{ name, value, kind }]    wide: in pixels, so that letters keep their size
 * key: keeps the table open over updates
 */
const opened = new Map();

export function chart(spec) {
  const series = spec.series.map((one, k) => ({ ...one, points: one.points.filter((p) => usable(p, spec)), colour: one.colour ?? k % 8 }));
  const WIDE = Math.round(Math.min(760, Math.max(300, spec.wide ?? 560)));
  const lines = (spec.lines ?? []).filter((line) => Number.isFinite(line.value) && (!spec.x.log || line.value > 0));
  const [x, y] = [scale(spec.x, LEFT, WIDE - RIGHT, series.flatMap((o) => o.points.map((p) => p.x)), lines.map((l) => l.value)),
    scale(spec.y, HIGH - BOTTOM, TOP, series.flatMap((o) => o.points.flatMap((p) => [p.y, p.low, p.high])), [])];
  const plot = s("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-label": words(spec, series) });
  plot.style.maxWidth = `${1.15 * WIDE}px`;
  plot.append(...axes(spec, x, y, WIDE));
  for (const line of lines) {
    if (line.value < x.min || line.value > x.max) continue;
    plot.append(s("line", { x1: x.at(line.value), x2: x.at(line.value), y1: TOP, y2: HIGH - BOTTOM, class: `series sx ${line.kind}` }));
  }
  for (const one of series) plot.append(...draw(one, x, y));
  const tip = h("div", { class: "tip", hidden: true });
  const frame = h("div", { class: "plot", tabindex: "0", role: "group", "aria-label": `${spec.title}: arrow keys go along its points` }, plot, tip);
  const live = h("p", { class: "hidden-visually", "aria-live": "polite" });
  reach(frame, plot, tip, live, series, x, y, WIDE);
  const key = spec.key ?? spec.title;
  const data = h("details", { open: opened.get(key) ?? false, ontoggle: (event) => opened.set(key, event.target.open) },
    h("summary", { text: "Table of this chart" }), dataTable(spec, series, lines));
  return h("figure", { "data-chart": key }, h("figcaption", { text: spec.title }), frame, live, legend(series, lines), data);
}

function markOf(one) {
  return { star: STAR, dash: DASH }[one.mark] ?? (one.mark ?? one.colour) % STAR;
}

function usable(point, spec) {
  return Number.isFinite(point.x) && Number.isFinite(point.y) && (!spec.x.log || point.x > 0) && (!spec.y.log || point.y > 0);
}

function words(spec, series) {
  const each = series.filter((o) => o.points.length).map((o) => `${o.name}, ${o.points.length} points`);
  return `${spec.title}. ${spec.y.label} against ${spec.x.label}. ${each.join("; ") || "Nothing is there yet"}.`;
}

/** A scale from values to pixels. Lines count for the range, as long as they do not make it five times as wide. */
function scale(axis, from, to, values, extra) {
  const known = values.filter((v) => Number.isFinite(v) && (!axis.log || v > 0));
  let [min, max] = [axis.min ?? Math.min(...known), axis.max ?? Math.max(...known)];
  if (!Number.isFinite(min) || !Number.isFinite(max)) [min, max] = axis.log ? [1, 10] : [0, 1];
  for (const value of extra) {
    if (axis.min === undefined && value < min && (axis.log ? value * 5 > min : true)) min = value;
    if (axis.max === undefined && value > max && value < 1.6 * max) max = value;
  }
  if (min === max) [min, max] = axis.log ? [min / 2, max * 2] : [min - 0.5, max + 0.5];
  const f = axis.log ? Math.log : (v) => v;
  const margin = axis.min === undefined && axis.max === undefined ? 0.03 : 0;
  const [low, high] = [f(min) - margin * (f(max) - f(min)), f(max) + margin * (f(max) - f(min))];
  return { min: axis.log ? Math.exp(low) : low, max: axis.log ? Math.exp(high) : high, at: (v) => from + ((f(v) - low) / (high - low)) * (to - from) };
}

function ticks(axis, { min, max }) {
  if (axis.log) {
    const most = axis.most ?? 7, found = [];
    for (let p = Math.floor(Math.log10(min)); p <= Math.ceil(Math.log10(max)); p++) for (const k of [1, 2, 5]) found.push(k * 10 ** p);
    const inside = found.filter((v) => v >= min && v <= max);
    return inside.length > most ? inside.filter((v) => /^1/.test(v.toExponential())) : inside;
  }
  const step = 10 ** Math.floor(Math.log10((max - min) / 5));
  const good = [1, 2, 5, 10].map((k) => k * step).find((k) => (max - min) / k <= 6);
  const first = Math.ceil(min / good);
  return Array.from({ length: Math.max(0, Math.floor(max / good) - first + 1) }, (_, k) => +((first + k) * good).toPrecision(12));
}

function axes(spec, x, y, WIDE) {
  const out = [];
  for (const value of ticks(spec.x, x)) {
    out.push(s("line", { x1: x.at(value), x2: x.at(value), y1: TOP, y2: HIGH - BOTTOM, class: "grid" }),
      s("text", { x: x.at(value), y: HIGH - BOTTOM + 15, "text-anchor": "middle", text: number(value) }));
  }
  for (const value of ticks(spec.y, y)) {
    out.push(s("line", { x1: LEFT, x2: WIDE - RIGHT, y1: y.at(value), y2: y.at(value), class: "grid" }),
      s("text", { x: LEFT - 6, y: y.at(value) + 4, "text-anchor": "end", text: number(value) }));
  }
  const middle = (TOP + HIGH - BOTTOM) / 2;
  out.push(s("path", { d: `M${LEFT} ${TOP}V${HIGH - BOTTOM}H${WIDE - RIGHT}`, class: "axis", fill: "none" }),
    s("text", { x: (LEFT + WIDE - RIGHT) / 2, y: HIGH - 8, "text-anchor": "middle", text: spec.x.label }),
    s("text", { x: 13, y: middle, "text-anchor": "middle", transform: `rotate(-90 13 ${middle})`, text: spec.y.label }));
  return out;
}

function draw(one, x, y) {
  const out = [], cls = `s${one.colour}`;
  if (one.kind !== "points" && one.points.length > 1) {
    const d = one.points.map((p, k) => `${k ? "L" : "M"}${x.at(p.x).toFixed(1)} ${y.at(p.y).toFixed(1)}`).join("");
    out.push(s("path", { d, class: `series ${cls} ${one.kind}`, "data-series": one.name }));
  }
  if (one.kind === "dashed" || one.kind === "dotted") return out;
  for (const p of one.points) {
    if (Number.isFinite(p.low) || Number.isFinite(p.high)) {
      const [a, b] = [y.at(p.low ?? p.y), y.at(p.high ?? p.y)], at = x.at(p.x);
      out.push(s("path", { d: `M${at} ${a}V${b}M${at - 3} ${a}h6M${at - 3} ${b}h6`, class: `bar ${cls}` }));
    }
    const mark = MARKS[markOf(one)](x.at(p.x), y.at(p.y));
    mark.setAttribute("class", `mark ${cls}`);
    out.push(mark);
  }
  return out;
}

function legend(series, lines) {
  const item = (name, ...parts) => h("li", {}, s("svg", { viewBox: "0 0 32 12", "aria-hidden": "true" }, parts), name);
  const stroke = (kind, cls) => s("line", { x1: 0, x2: 32, y1: 6, y2: 6, class: `series ${cls} ${kind}` });
  const shown = series.filter((one) => one.points.length).map((one) => {
    const mark = MARKS[markOf(one)](16, 6);
    mark.setAttribute("class", `mark s${one.colour}`);
    const line = one.kind === "points" ? [] : [stroke(one.kind, `s${one.colour}`)];
    return item(one.name, ...line, ...(one.kind === "dashed" || one.kind === "dotted" ? [] : [mark]));
  });
  return h("ul", { class: "legend" }, shown, lines.map((line) => item(`${line.name}: ${number(line.value)}`, stroke(line.kind, "sx"))));
}

/** Mouse and arrow keys show the nearest point, the next point. */
function reach(frame, plot, tip, live, series, x, y, WIDE) {
  const points = series.flatMap((one) => one.points.map((p) => ({ ...p, name: one.name }))).sort((a, b) => a.x - b.x || a.y - b.y);
  let at = -1, ring = null;
  const hide = () => { tip.hidden = true; ring?.remove(); at = -1; };
  const show = (k, say) => {
    at = k;
    const p = points[k], [px, py] = [x.at(p.x), y.at(p.y)];
    ring?.remove();
    plot.append((ring = s("circle", { cx: px, cy: py, r: 7, class: "cursor" })));
    const ends = Number.isFinite(p.low) || Number.isFinite(p.high) ? ` [${number(p.low) || "?"}, ${number(p.high) || "?"}]` : "";
    tip.textContent = `${p.name}: ${number(p.x)}, ${number(p.y)}${ends}${p.text ? `, ${p.text}` : ""}`;
    tip.hidden = false;
    const box = frame.getBoundingClientRect(), right = px > WIDE / 2;
    tip.style.left = right ? "auto" : `${(px / WIDE) * box.width + 10}px`;
    tip.style.right = right ? `${(1 - px / WIDE) * box.width + 10}px` : "auto";
    tip.style.top = `${(py / HIGH) * box.height - 8}px`;
    if (say) live.textContent = tip.textContent;
  };
  frame.addEventListener("pointermove", (event) => {
    const box = plot.getBoundingClientRect();
    const [mx, my] = [((event.clientX - box.left) / box.width) * WIDE, ((event.clientY - box.top) / box.height) * HIGH];
    let best = -1, near = 900;
    points.forEach((p, k) => { const d = (x.at(p.x) - mx) ** 2 + (y.at(p.y) - my) ** 2; if (d < near) [best, near] = [k, d]; });
    if (best >= 0) show(best, false); else hide();
  });
  frame.addEventListener("pointerleave", hide);
  frame.addEventListener("blur", hide);
  frame.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined || !points.length) return;
    event.preventDefault();
    show(Math.min(points.length - 1, Math.max(0, at + step)), true);
  });
}

function dataTable(spec, series, lines) {
  const rows = series.flatMap((one) => one.points.map((p) => ({ ...p, name: one.name })));
  rows.push(...lines.map((line) => ({ name: line.name, x: line.value })));
  const columns = [["series", "name"], [spec.x.label, "x", true], [spec.y.label, "y", true], ["low", "low", true], ["high", "high", true]];
  return table(columns, rows, { label: `The data of: ${spec.title}` });
}
