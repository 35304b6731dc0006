// The page of `ensue serve`: tabs, and the address that brings each back as it was.
import { failed, hall, json, make, remember, settings, some } from "./kit.js";
import * as runs from "./tab_runs.js";
import * as next from "./tab_next.js";
import * as write from "./tab_write.js";
import * as translate from "./tab_translate.js";
import * as attention from "./tab_attention.js";
import * as inside from "./tab_inside.js";
import * as words from "./tab_words.js";
import * as tasks from "./tab_tasks.js";

const tabs = { runs, next, write, translate, attention, inside, words, tasks };
const main = document.getElementById("main"), said = document.getElementById("said"), nav = document.querySelector("nav");

const left = new Map(); // the address of each tab when it was left
const OF_TEXT = ["at", "tree_step", "steps_step"]; // what is nothing in another text
let shown = "";

function open(name) {
  if (!Object.hasOwn(tabs, name ?? "")) name = "runs";
  shown = name;
  for (const button of nav.children) {
    const own = button.dataset.tab === name;
    button.setAttribute("aria-selected", String(own));
    button.tabIndex = own ? 0 : -1;
    if (own) button.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
  said.textContent = "";
  main.setAttribute("aria-labelledby", `tab-${name}`);
  tabs[name].open(main, go);
}
/** Open a tab as it was left, with the text that the last one had; of another run than then only tries stay. */
function go(name, values = {}, { replace = name === shown } = {}) {
  const text = settings().get("text") ?? "";
  left.set(shown, settings());
  const held = new URLSearchParams(left.get(name));
  const strange = values.model && values.model !== held.get("model") ? [...held.keys()].filter((key) => key !== "tries") : [];
  for (const key of [...strange, ...(text === (held.get("text") ?? "") ? [] : OF_TEXT)]) held.delete(key);
  history[replace ? "replaceState" : "pushState"](null, "", `#${held}`);
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
  go(button.dataset.tab, {}, { replace: true }); // else the way back would lead through all that were passed
});
main.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) main.querySelector("button.main:not(:disabled)")?.click();
});
document.getElementById("link").addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(location.href);
    said.textContent = "copied";
  } catch {
    said.textContent = location.href; // there is no clipboard where the page came over plain HTTP
  }
});
addEventListener("popstate", () => open(settings().get("tab")));

json("/api/runs").then((found) => {
  Object.assign(hall, found);
  open(settings().get("tab") ?? (some("next") ? "next" : "runs"));
}, (error) => failed(error, main));
