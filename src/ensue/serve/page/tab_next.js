// Next word: the predictions of all models side by side, updated while typing.
import { area, bars, busy, json, kept, latest, make, nothing, notes, soft, some, withCapability } from "./ui.js";
import { folded, show } from "./charts.js";
import { pictureOf, savers } from "./downloads.js";

const CHART_RUNS = 8; // runs in one chart

export const title = "Next word";
export function open(main) {
  if (!some("next")) return nothing(main, "can complete text", "ensue fit lstm my.txt --out runs/lstm");
  const runs = withCapability("next");
  const text = kept("text", area("Text", "the students opened their"));
  const cards = make("div", { className: "cards", "aria-live": "polite" });
  let result = {};
  const again = latest(120, cards, async (signal) => {
    const form = { text: text.value, top: 10 };
    const answers = await Promise.allSettled(runs.map((one) => json("/api/next", { model: one.id, ...form }, signal)));
    if (signal.aborted) return;
    result = { text: text.value, models: answers.filter((one) => one.value).map((one) => one.value) };
    const most = Math.max(...result.models.flatMap((one) => one.next.map((each) => each.probability)), 1e-9);
    cards.replaceChildren(...answers.map((answer, i) => card(runs[i], answer, most)));
    surprise();
  });
  const card = (model, answer, most) => {
    const box = make("section", { className: "card" }, make("h2", {}, `${model.id} (${model.system})`));
    if (answer.status === "rejected") box.append(make("p", { className: "error" }, answer.reason.message));
    else {
      const pieces = new Map(answer.value.next.map((one) => [one.token, one.text]));
      const items = answer.value.next.map((one) => ({ name: one.token, value: one.probability, enabled: one.text !== null }));
      box.append(bars(items, { most, go: (token) => add(pieces.get(token)) }), ...notes(answer.value));
    }
    return box;
  };
  const add = (piece) => {
    text.value += piece ?? "";
    text.dispatchEvent(new Event("input"));
    text.focus();
  };
  const surprisals = make("div");
  const surprise = latest(500, surprisals, async (signal) => {
    if (!section.open) return;
    if (!text.value.trim()) return surprisals.replaceChildren(soft("Type a text."));
    const groups = Array.from({ length: Math.ceil(runs.length / CHART_RUNS) }, (_, i) => runs.slice(CHART_RUNS * i, CHART_RUNS * (i + 1)).map((one) => one.id));
    const sections = groups.map(() => make("section"));
    surprisals.replaceChildren(...sections);
    await Promise.all(groups.map((models, i) => busy(sections[i], () => show("surprise", { models, text: text.value }, sections[i], { signal }))));
  });
  const section = folded("Surprisal of each token in bits", (where) => { where.append(surprisals); surprise(); }, { key: "surprise_open" });
  text.addEventListener("input", again);
  main.replaceChildren(text, soft("Click a token, or press Enter on it, to append it. All models share one scale."), cards, savers("next", () => result, () => pictureOf(cards, result.text)), section);
  if (!document.activeElement?.closest("nav")) text.focus(); // do not interrupt arrow keys on the tabs
  again();
}
