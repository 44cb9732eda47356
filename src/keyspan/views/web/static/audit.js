// Audit: heads across, layers down; a head's spectrum where it is chosen.
import { chart } from "./charts.js";
import { ask, h, number, table } from "./dom.js";

const VIRIDIS = [[68, 1, 84], [71, 44, 122], [59, 81, 139], [44, 113, 142], [33, 144, 141], [39, 173, 129], [92, 200, 99], [170, 220, 50], [253, 231, 37]];
const METRICS = {
  used: ["share of d_key used (effective rank)", (layer, k) => layer.effective_rank[k] / layer.d_key],
  effective: ["effective rank", (layer, k) => layer.effective_rank[k]],
  stable: ["stable rank", (layer, k) => layer.stable_rank[k]],
  symmetry: ["symmetry of queries and keys", (layer, k) => layer.symmetry?.[k]],
  angle: ["smallest angle to another head, degrees", (layer, k) => layer.overlap?.smallest_angle?.[k]],
  found: ["F1 on the given pairs", (layer, k) => layer.relations?.heads?.[k]?.f1],
};

export function view(main, parameters, navigate) {
  let metric = parameters.get("metric") ?? "used", layer = parameters.get("layer"), head = parameters.get("head"), audit = null;
  const map = h("div", { id: "map" }), detail = h("div", { id: "head" });
  main.replaceChildren(h("h2", { text: "What does this model's attention have, use and waste?" }), h("p", { text: "Reading." }));

  const go = () => navigate("audit", { ...(metric !== "used" ? { metric } : {}), ...(head !== null ? { layer, head } : {}) });
  const choose = async (a, b) => {
    [layer, head] = [String(a), String(b)];
    go();
    for (const button of map.querySelectorAll("button")) button.setAttribute("aria-pressed", String(button.dataset.place === `${a}.${b}`));
    try {
      detail.replaceChildren(...spectrum(await ask(`audit/${a}/${b}`), audit.layers.find((l) => l.layer === +a), detail.clientWidth));
    } catch (error) {
      detail.replaceChildren(h("p", { class: "fails", role: "alert", text: error.message }));
    }
  };

  function draw() {
    const [label, of] = METRICS[metric];
    const values = audit.layers.map((l) => Array.from({ length: l.heads }, (_, k) => of(l, k)));
    const known = values.flat().filter(Number.isFinite);
    const [low, high] = [Math.min(...known), Math.max(...known)];
    const widest = Math.max(...audit.layers.map((l) => l.heads));
    const rows = audit.layers.map((l, i) => h("tr", {}, h("th", { scope: "row", text: l.layer }), values[i].map((v, k) => h("td", {}, cell(l, k, v, low, high)))));
    const heading = h("tr", {}, h("th", { scope: "col", text: "layer" }), Array.from({ length: widest }, (_, k) => h("th", { scope: "col", text: k })));
    map.replaceChildren(h("div", { class: "wide map", role: "region", "aria-label": "Heads by layers", onkeydown: arrows }, h("table", {}, h("caption", { text: `${label}: ${number(low)} (dark) to ${number(high)} (light). Rows are layers, columns query heads.` }), h("thead", {}, heading), h("tbody", {}, rows))));
    const pressed = map.querySelector('[aria-pressed="true"]') ?? map.querySelector("button");
    if (pressed) pressed.tabIndex = 0;
  }

  function cell(l, k, value, low, high) {
    const share = Number.isFinite(value) ? (high > low ? (value - low) / (high - low) : 0.5) : 0;
    const place = `${l.layer}.${k}`;
    const button = h("button", { type: "button", tabindex: "-1", "data-place": place, "aria-pressed": String(String(l.layer) === layer && String(k) === head), "aria-label": `layer ${l.layer}, head ${k}: ${number(value) || "no value"}`, title: `layer ${l.layer}, head ${k}: ${number(value) || "no value"}`, onclick: (event) => { for (const b of map.querySelectorAll("button")) b.tabIndex = -1; event.currentTarget.tabIndex = 0; choose(l.layer, k); } });
    const at = share * (VIRIDIS.length - 1), i = Math.min(VIRIDIS.length - 2, Math.floor(at)), rest = at - i;
    const colour = VIRIDIS[i].map((c, j) => Math.round(c + rest * (VIRIDIS[i + 1][j] - c)));
    button.style.backgroundColor = Number.isFinite(value) ? `rgb(${colour})` : "transparent";
    return button;
  }

  function arrows(event) {
    const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
    if (!step || event.target.tagName !== "BUTTON") return;
    event.preventDefault();
    const row = event.target.closest("tr"), column = [...row.children].indexOf(event.target.parentElement);
    const rows = [...row.parentElement.children], next = rows[rows.indexOf(row) + step[0]]?.children[column + step[1]]?.querySelector("button");
    if (next) { event.target.tabIndex = -1; next.tabIndex = 0; next.focus(); }
  }

  async function start() {
    let missing = "";
    try {
      if ((await ask("state")).audit === null) missing = "No audit was given. Start the page with a checkpoint's folder, or with a kept audit: keyspan ui --audit FOLDER";
      else audit = await ask("audit");
    } catch (error) {
      missing = error.message;
    }
    if (missing) {
      main.replaceChildren(h("h2", { text: "What does this model's attention have, use and waste?" }), h("p", { text: missing }));
      return;
    }
    const there = Object.entries(METRICS).filter(([, [, of]]) => Number.isFinite(of(audit.layers[0], 0)));
    if (!there.some(([name]) => name === metric)) metric = "used";
    const select = h("select", { id: "metric", onchange: () => { metric = select.value; go(); draw(); } }, there.map(([name, [label]]) => h("option", { value: name, selected: name === metric, text: label })));
    const columns = [["layer", "layer", true], ["heads", "heads", true], ["key heads", "kv_heads", true], ["d_key", "d_key", true], ["has", "key_budget", true], ["uses", "used", true], ["share", "used_fraction", true], ["unlike heads", "distinct_heads", true], ["capacity", (l) => (l.capacity ? `${number(l.capacity.estimate)} [${number(l.capacity.low)}, ${number(l.capacity.high)}]` : ""), true]];
    const s = audit.summary ?? {};
    main.replaceChildren(h("h2", { text: "What does this model's attention have, use and waste?" }),
      h("p", { class: "dim", text: `${audit.folder ?? "audit"}${audit.model_type ? ` (${audit.model_type})` : ""}: ${number(audit.layers.length)} layers${s.key_budget ? `, key budget ${number(s.key_budget)}, ${number(100 * s.used_fraction, 2)}% of it used` : ""}` }),
      h("div", { class: "filters" }, h("label", { for: "metric", text: "Colour by" }), select),
      h("div", { class: "columns list" }, map, detail), h("h3", { text: "Layers" }), table(columns, audit.layers, { label: "Layers" }),
      (audit.notes ?? []).length ? h("ul", { class: "dim" }, audit.notes.map((note) => h("li", { text: note }))) : "");
    detail.replaceChildren(h("p", { class: "dim", text: "Choose a head for its spectrum." }));
    draw();
    if (layer !== null && head !== null) choose(+layer, +head);
  }
  start();
  return {};
}

function spectrum(found, layer, wide) {
  const facts = [["effective rank", number(found.effective_rank)], ["stable rank", number(found.stable_rank)], ["symmetry", number(found.symmetry)], ["d_key", number(found.d_key)]].filter(([, v]) => v);
  const head = [h("h3", { text: `Layer ${found.layer}, head ${found.head}` }), h("dl", { class: "answer" }, facts.map(([name, value]) => h("div", {}, h("dt", { text: name }), h("dd", { text: value }))))];
  if (!found.values) return [...head, h("p", { text: "The audit was kept without spectra: use --spectra." })];
  const top = found.values[0] || 1;
  const points = found.values.map((v, k) => ({ x: k + 1, y: v / top }));
  return [...head, chart({ title: "Singular values of W_Q W_Kᵀ", x: { label: `index, of d_key ${layer.d_key}` }, y: { label: "over the largest", min: 0, max: 1.04 }, series: [{ name: "this head", kind: "solid", colour: 0, points }], wide, key: "spectrum" })];
}
