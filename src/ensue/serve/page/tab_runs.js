// Runs: cards with scores, learning curves and races.
import { busy, button, make, registry, row } from "./ui.js";
import { folded, show } from "./charts.js";

const TABS = { senses: "words", predict: "tasks", fill: "tasks", forecast: "tasks" }; // other capabilities are named after their tab

export const title = "Runs";
export function open(main, go) {
  main.replaceChildren(make("div", { className: "cards" }, ...registry.runs.map((one) => card(one, go))));
  for (const race of registry.races) {
    const section = make("section");
    main.append(make("h2", {}, `Race ${race}`), section);
    busy(section, () => show("race", { race }, section));
  }
  const trained = Map.groupBy(registry.runs.filter((one) => one.parameters), (one) => one.task); // losses of different tasks are not comparable
  if (!trained.size) return;
  main.append(make("h2", {}, "Learning curves"));
  for (const [task, runs] of trained) {
    const curves = make("section");
    main.append(folded(`${task}: ${runs.map((one) => one.id).join(", ")}`, (where) => {
      where.append(curves);
      busy(curves, () => show("curves", { models: runs.map((one) => one.id).slice(0, 8) }, curves));
    }, { open: task === registry.runs.find((one) => one.parameters).task, key: `curves_${task}` })); // others are drawn when opened
  }
}
function card(one, go) {
  const facts = [
    ["system", one.system], ["task", one.task],
    ...one.figures.map(({ name, value }) => [name, value]),
    ["parameters", one.parameters ? one.parameters.toLocaleString("en") : "none (count-based)"],
    ["created", new Date(one.created * 1000).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" })],
  ];
  const list = make("dl", {}, ...facts.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
  const tabs = [...new Set(one.can.map((capability) => TABS[capability] ?? capability))];
  const buttons = tabs.map((tab) => button(document.getElementById(`tab-${tab}`).textContent, () => go(tab, { model: one.id, ...(tab === "words" ? { mapped: one.id, sensed: one.id } : {}) })));
  return make("article", { className: "card" }, make("h2", {}, one.id), list, row(...buttons));
}
