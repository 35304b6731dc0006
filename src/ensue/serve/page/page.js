// The web page of `ensue serve`: tabs, whose state is kept in the address.
import { json, make, registry, remember, settings, showError, some } from "./ui.js";
import * as runs from "./tab_runs.js";
import * as next from "./tab_next.js";
import * as write from "./tab_write.js";
import * as chat from "./tab_chat.js";
import * as translate from "./tab_translate.js";
import * as attention from "./tab_attention.js";
import * as inside from "./tab_inside.js";
import * as words from "./tab_words.js";
import * as tasks from "./tab_tasks.js";

const tabs = { runs, next, write, chat, translate, attention, inside, words, tasks };
const main = document.getElementById("main"), status = document.getElementById("status"), nav = document.querySelector("nav");

const saved = new Map(); // the settings of each tab when it was closed
const TEXT_KEYS = ["at", "tree_step", "steps_step"]; // settings that belong to one text
let current = "";

function open(name) {
  if (!Object.hasOwn(tabs, name ?? "")) name = "runs";
  current = name;
  for (const button of nav.children) {
    const selected = button.dataset.tab === name;
    button.setAttribute("aria-selected", String(selected));
    button.tabIndex = selected ? 0 : -1;
    if (selected) button.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
  status.textContent = "";
  main.setAttribute("aria-labelledby", `tab-${name}`);
  tabs[name].open(main, go);
}
/** Open a tab with its saved settings and the text of the last tab; for another model only its samples are kept. */
function go(name, values = {}, { replace = name === current } = {}) {
  const text = settings().get("text") ?? "";
  saved.set(current, settings());
  const state = new URLSearchParams(saved.get(name));
  const stale = values.model && values.model !== state.get("model") ? [...state.keys()].filter((key) => key !== "tries") : [];
  for (const key of [...stale, ...(text === (state.get("text") ?? "") ? [] : TEXT_KEYS)]) state.delete(key);
  history[replace ? "replaceState" : "pushState"](null, "", `#${state}`);
  remember({ tab: name, text, ...values });
  open(name);
}

nav.append(...Object.entries(tabs).map(([name, tab]) => {
  const button = make("button", { type: "button", role: "tab", id: `tab-${name}`, "aria-controls": "main", onclick: () => go(name) }, tab.title);
  button.dataset.tab = name;
  return button;
}));
nav.addEventListener("keydown", (event) => {
  const all = [...nav.children], at = all.indexOf(event.target);
  const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: all.length - 1 }[event.key];
  if (to === undefined || at < 0) return;
  event.preventDefault();
  const button = all[(to + all.length) % all.length];
  button.focus();
  go(button.dataset.tab, {}, { replace: true }); // otherwise the back button would step through every tab passed
});
main.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) main.querySelector("button.main:not(:disabled)")?.click();
});
document.getElementById("link").addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(location.href);
    status.textContent = "link copied";
  } catch {
    status.textContent = location.href; // browsers offer no clipboard over plain HTTP
  }
});
addEventListener("popstate", () => open(settings().get("tab")));

json("/api/runs").then((response) => {
  Object.assign(registry, response);
  open(settings().get("tab") ?? ["chat", "next"].find(some) ?? "runs");
}, (error) => showError(error, main));
