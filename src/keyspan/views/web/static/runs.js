// Runs: cells as they are measured; a threshold curve for each, whose points appear as members finish.
import { chart } from "./charts.js";
import { ask, h, interval, number, table } from "./dom.js";

const PAGE = 50;

export function view(main, parameters, navigate) {
  let chosen = parameters.get("cell"), text = parameters.get("text") ?? "", shownCells = [], fresh = new Map(), limit = PAGE, seen = null, busy = false, again = false;
  const filter = h("input", { type: "search", id: "filter", value: text, placeholder: "filter: items, recipe, graph", "aria-label": "Filter cells", oninput: () => { text = filter.value; limit = PAGE; go(); refresh(); } });
  const list = h("div", { id: "cells" }, h("p", { text: "Reading." })), detail = h("div", { id: "cell" });
  main.replaceChildren(h("h2", { text: "What is being measured?" }), h("div", { class: "columns list" }, h("div", {}, h("div", { class: "filters" }, filter), list), detail));

  const go = () => navigate("runs", { ...(chosen ? { cell: chosen } : {}), ...(text ? { text } : {}) });
  const choose = (id) => { chosen = id; go(); draw(); showCell(); };

  async function refresh() {
    if (busy) { again = true; return; }
    busy = true;
    try {
      const answer = await ask("cells", { text, limit });
      shownCells = answer.cells;
      if (!chosen && shownCells.length) chosen = shownCells[0].id;
      draw(answer.total);
      await showCell();
    } catch (error) {
      list.replaceChildren(h("p", { class: "fails", role: "alert", text: error.message }));
    }
    busy = false;
    if (again) { again = false; refresh(); }
  }

  let total = 0;
  function draw(count = total) {
    total = count;
    if (!shownCells.length) {
      list.replaceChildren(h("p", { text: text ? "No cell has these words." : "Nothing is measured yet. Runs appear here as they finish." }));
      detail.replaceChildren();
      return;
    }
    const hadFocus = document.activeElement?.dataset?.cell, top = list.firstElementChild?.scrollTop ?? 0;
    const link = (cell) => h("a", { href: `#/runs?cell=${cell.id}`, "data-cell": cell.id, text: cell.title, onclick: (event) => { event.preventDefault(); choose(cell.id); } });
    const frame = table([["cell", link], ["recipe", (c) => (c.arithmetic === "fp32" ? c.recipe : `${c.recipe}, ${c.arithmetic}`)], ["runs", "runs", true], ["capacity", (c) => (c.capacity.estimate === null ? "not yet" : interval(c.capacity)), true]], shownCells, {
      caption: `${shownCells.length} of ${number(total)} cells, the latest first. Capacity: D_K or load at 0.99, with the bracket measured.`, label: "Cells",
      attributes: (cell) => ({ "aria-selected": cell.id === chosen ? "true" : "false", class: fresh.has(cell.id) && fresh.get(cell.id) < cell.runs ? "new" : null }),
    });
    fresh = new Map(shownCells.map((cell) => [cell.id, cell.runs]));
    list.replaceChildren(frame, total > shownCells.length ? h("button", { type: "button", text: "More cells", onclick: () => { limit = Math.min(500, limit * 2); refresh(); } }) : "");
    frame.scrollTop = top;
    if (hadFocus) list.querySelector(`[data-cell="${hadFocus}"]`)?.focus();
  }

  let last = null;
  async function showCell() {
    if (!chosen) return;
    try {
      const [cell, runs] = await Promise.all([ask(`cells/${chosen}`), ask(`cells/${chosen}/runs`, { limit: PAGE })]);
      const stamp = `${cell.id} ${cell.runs}`;
      if (stamp === last) return;
      last = stamp;
      detail.replaceChildren(...pictured(cell, runs, detail.clientWidth));
    } catch (error) {
      last = null;
      detail.replaceChildren(h("p", { class: "fails", role: "alert", text: error.message }));
    }
  }

  function keys(event) {
    const step = { j: 1, k: -1 }[event.key];
    if (step === undefined || !shownCells.length) return false;
    const at = shownCells.findIndex((cell) => cell.id === chosen);
    choose(shownCells[Math.min(shownCells.length - 1, Math.max(0, at + step))].id);
    list.querySelector(`[data-cell="${chosen}"]`)?.focus();
    return true;
  }
  refresh();
  return { keys, update: (state) => { if (seen !== null && seen !== state.version) refresh(); seen = state.version; } };
}

function pictured(cell, runs, wide) {
  const series = cell.lines.map((line, k) => ({ name: line.name, kind: "solid", colour: k % 8, points: line.points.map((p) => ({ ...p, text: `${p.seeds} seeds` })) }));
  const statuses = Object.entries(cell.statuses).map(([name, count]) => `${number(count)} ${name}`).join(", ");
  const lines = cell.marks.map((mark) => ({ name: mark.name, value: mark.value, kind: mark.style }));
  const columns = [["run", (r) => h("a", { href: `api/runs/${r.run_id}`, target: "_blank", rel: "noopener", text: r.run_id.slice(0, 10) })], ["status", "status"], ["heads", "heads", true], ["d_key", "d_key", true], ["examples", "examples", true], ["seed", "replicate", true], ["F1", "f1", true], ["accuracy", "accuracy", true], ["exact", (r) => (r.exact === null ? "" : r.exact ? "yes" : "no")], ["steps", "steps", true], ["seconds", "seconds", true], ["when", (r) => (r.created ?? "").slice(0, 19).replace("T", " "), true]];
  const used = columns.filter(([, key]) => typeof key === "function" || runs.runs.some((r) => r[key] !== null && r[key] !== undefined));
  return [h("h3", { text: `${cell.title}; ${cell.recipe}` }), h("p", { class: "dim", text: `${statuses}. At 0.99: ${interval(cell.capacity)}${cell.capacity.heads ? `, with ${cell.capacity.heads} heads` : ""}.` }),
    cell.x_label ? chart({ title: `${cell.y_label} against ${cell.x_label.split(" D_K")[0]}`, x: { label: cell.x_label, min: 0 }, y: { label: cell.y_label, min: 0, max: 1.04 }, series, lines, wide, key: "cell" }) : h("p", { text: "This family has no curve here; its runs are below." }),
    h("h3", { text: "Runs" }), table(used, runs.runs, { caption: `${runs.runs.length} of ${number(runs.total)} runs, the newest first`, label: "Runs" })];
}
