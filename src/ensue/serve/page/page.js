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

function open(name) {
  if (!Object.hasOwn(tabs, name ?? "")) name = "runs";
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
/** Open a tab; what the text and the runs are stays, what only the last view knew goes. */
function go(name, values = {}) {
  const held = settings(), kept = Object.fromEntries(["text"].map((key) => [key, held.get(key) ?? ""]));
  history.pushState(null, "", "#");
  remember({ tab: name, ...kept, ...values });
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
  button.click();
});
main.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) main.querySelector("button.main:not(:disabled)")?.click();
});
document.getElementById("link").addEventListener("click", async () => {
  await navigator.clipboard.writeText(location.href).then(() => (said.textContent = "copied"), () => (said.textContent = location.href));
});
addEventListener("popstate", () => open(settings().get("tab")));

json("/api/runs").then((found) => {
  Object.assign(hall, found);
  open(settings().get("tab") ?? (some("next") ? "next" : "runs"));
}, (error) => failed(error, main));
