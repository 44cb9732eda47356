// The page: which view is shown, what the address says, keys, the theme, and a look at the server once a second.
import { ask, h, number } from "./dom.js";
import * as audit from "./audit.js";
import * as design from "./design.js";
import * as ledger from "./ledger.js";
import * as runs from "./runs.js";

const VIEWS = { design, runs, audit, ledger };
const EVERY = 1000;
const main = document.getElementById("main"), running = document.getElementById("running"), help = document.getElementById("help");
let shown = null, current = {};

/** Writes a view and its parameters into the address, without a new entry for every move of a slider. */
function navigate(view, parameters) {
  const query = new URLSearchParams(Object.entries(parameters).map(([k, v]) => [k, String(v)])).toString();
  history.replaceState(null, "", `#/${view}${query ? `?${query}` : ""}`);
}

function route() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const name = VIEWS[path] ? path : "design";
  shown = name;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.view === name) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  document.title = `keyspan: ${name}`;
  current = VIEWS[name].view(main, new URLSearchParams(query ?? ""), navigate) ?? {};
}

async function look() {
  try {
    const state = await ask("state");
    const read = state.runs < state.rows ? `reading the store, ${number(state.runs)} of ${number(state.rows)}` : `${number(state.runs)} runs`;
    document.getElementById("state").textContent = `${read} in ${state.store}`;
    show(state.running);
    current.update?.(state);
  } catch {
    document.getElementById("state").textContent = "the server has gone: start `keyspan ui` again";
  }
  setTimeout(look, EVERY);
}

function show(processes) {
  running.hidden = processes.length === 0;
  running.replaceChildren(...processes.map((p) => h("div", {}, h("code", { text: p.command, title: p.command }), h("progress", { max: 1, value: p.share, "aria-label": `${p.command}: ${Math.round(100 * p.share)}%` }), h("span", { text: `${number(p.finished)} of ${number(p.members)} members, round ${p.round}` }))));
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
  if (event.target.matches("input:not([type=range]), select, textarea")) return;
  const views = Object.keys(VIEWS);
  if (event.key >= "1" && event.key <= String(views.length)) location.hash = `#/${views[event.key - 1]}`;
  else if (event.key === "/") document.getElementById("filter")?.focus();
  else if (event.key === "?") help.showModal();
  else if (event.key === "t") {
    const all = [...document.querySelectorAll("figure details")], open = all.some((d) => !d.open);
    for (const d of all) d.open = open;
  } else if (!current.keys?.(event)) return;
  event.preventDefault();
});

const theme = document.getElementById("theme");
theme.value = localStorage.getItem("keyspan-theme") ?? "auto";
const paint = () => { document.documentElement.dataset.theme = theme.value; localStorage.setItem("keyspan-theme", theme.value); };
theme.addEventListener("change", paint);
paint();
document.getElementById("keys").addEventListener("click", () => help.showModal());
addEventListener("hashchange", route);
route();
look();
