// Ledger: every claim of the papers, measured or not, holds or not.
import { chart } from "./charts.js";
import { ask, h, number, table } from "./dom.js";

const BEST = 60;

export function view(main, parameters, navigate) {
  let paper = parameters.get("paper") ?? "", status = parameters.get("status") ?? "", text = parameters.get("text") ?? "", told = null, seen = null;
  const claim = parameters.get("claim");
  const body = h("div", { id: "claims" }, h("p", { role: "status", text: "Asking the store what it says of every claim. The first time this takes some seconds." }));
  main.replaceChildren(h("h2", { text: "Which claims hold?" }), body);

  const go = () => navigate("ledger", Object.fromEntries(Object.entries({ paper, status, text }).filter(([, value]) => value)));
  const pick = (label, value, options, set) => h("label", {}, `${label} `, h("select", { onchange: (event) => { set(event.target.value); go(); draw(); } }, ["", ...options].map((o) => h("option", { value: o, selected: o === value, text: o || "all" }))));
  const rows = h("div", {}), filter = h("input", { type: "search", id: "filter", value: text, "aria-label": "Filter claims", placeholder: "filter claims", oninput: () => { text = filter.value; go(); draw(); } });

  function frame() {
    const counts = Object.entries(told.counts).map(([name, n]) => `${name} ${n}`).join(", ");
    body.replaceChildren(h("p", { class: "dim", text: `${told.claims.length} claims: ${counts}; on ${number(told.run_ids)} runs.` }),
      h("div", { class: "filters" }, pick("Paper", paper, [...new Set(told.claims.map((c) => c.paper))], (v) => (paper = v)), pick("Status", status, Object.keys(told.counts), (v) => (status = v)), filter), rows, ...bits(told.bits));
    draw();
    if (claim) document.getElementById(claim)?.setAttribute("open", "");
  }

  function draw() {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const found = told.claims.filter((c) => (!paper || c.paper === paper) && (!status || c.status === status) && words.every((w) => `${c.id} ${c.claim} ${c.source}`.toLowerCase().includes(w)));
    const bound = (t) => (Array.isArray(t) ? t.map((v) => number(v)).join(" and ") : number(t));
    const measured = (c) => (c.measured === null ? "" : `${number(c.measured)}${c.low !== null && c.low !== c.high ? ` [${number(c.low)}, ${number(c.high)}]` : ""}`);
    const about = (c) => h("details", { id: c.id }, h("summary", { text: c.claim }), h("dl", {}, [["id", c.id], ["says", `${c.paper}, ${c.source}; expected: ${c.expected}`], ["interval", c.interval], ["power", c.power], ["reason", c.reason], ["nearest", c.proxy]].filter(([, v]) => v).flatMap(([k, v]) => [h("dt", { text: k }), h("dd", { text: v })]), c.command ? [h("dt", { text: "command" }), h("dd", {}, h("code", { text: c.command }))] : []));
    rows.replaceChildren(table([["claim", about], ["check", (c) => `${c.statistic} ${c.test} ${bound(c.threshold)}`], ["measured [95%]", measured, true], ["status", (c) => h("span", { class: c.status, text: c.status })], ["rests on", (c) => (c.figure ? `${c.figure}${c.tier ? ` at ${c.tier}` : ""}${c.runs ? `, ${number(c.runs)} runs` : ""}` : "")]], found, { caption: `${found.length} claims`, label: "Claims" }));
  }

  async function refresh() {
    try {
      const answer = await ask("ledger");
      const first = told === null, same = !first && answer.run_ids === told.run_ids && JSON.stringify(answer.counts) === JSON.stringify(told.counts);
      told = answer;
      if (first || !same) frame();
    } catch (error) {
      body.replaceChildren(h("p", { class: "fails", role: "alert", text: error.message }));
    }
  }
  refresh();
  return { update: (state) => { if (seen !== null && seen !== state.version) refresh(); seen = state.version; } };
}

function bits(rows) {
  if (!rows.length) return [];
  const problems = [...new Set(rows.map((r) => r.problem))];
  const series = problems.map((problem, k) => ({ name: problem, kind: "points", colour: k, points: rows.filter((r) => r.problem === problem).map((r) => ({ x: r.parameters, y: r.per_parameter, low: r.low, high: r.high, text: r.cell })) }));
  series.push(...problems.map((problem, k) => ({ name: `${problem}, proven bound`, kind: "points", mark: "dash", colour: k, points: rows.filter((r) => r.problem === problem).map((r) => ({ x: r.parameters, y: r.bound })) })));
  return [h("h3", { text: "Bits stored per parameter" }), chart({ title: "One currency for every problem", x: { label: "parameters trained", log: true }, y: { label: "bits per parameter", log: true }, series, wide: 720, key: "bits" }),
    table([["problem", "problem"], ["cell", "cell"], ["recipe", "recipe"], ["level", "level"], ["seeds", "seeds", true], ["bits per parameter", (r) => `${number(r.per_parameter)} [${number(r.low)}, ${number(r.high)}]`, true], ["bound", "bound", true], ["by", "bound_source"]], rows.slice(0, BEST), { caption: `${Math.min(BEST, rows.length)} of ${number(rows.length)} cells`, label: "Bits" })];
}
