// Next word: what every model thinks comes next, side by side, while one types.
import { area, bars, hall, json, kept, latest, make, nothing, some } from "./kit.js";
import { pictureOf, savers } from "./saving.js";

export const title = "Next word";
export function open(main) {
  if (!some("next")) return nothing(main, "goes on with a text", "ensue fit lstm my.txt --out runs/lstm");
  const asked = hall.runs.filter((one) => one.can.includes("next"));
  const text = kept("text", area("Text", "the students opened their"));
  const found = make("div", { className: "cards", "aria-live": "polite" });
  let told = {};
  const again = latest(120, found, async (signal) => {
    const form = { text: text.value, top: 10 };
    const answers = await Promise.allSettled(asked.map((one) => json("/api/next", { model: one.id, ...form }, signal)));
    if (signal.aborted) return;
    told = { text: text.value, models: answers.filter((one) => one.value).map((one) => one.value) };
    found.replaceChildren(...answers.map((answer, place) => card(asked[place], answer)));
  });
  const card = (model, answer) => {
    const box = make("section", { className: "card" }, make("h2", {}, `${model.id} (${model.system})`));
    if (answer.status === "rejected") box.append(make("p", { className: "error" }, answer.reason.message));
    else {
      const pieces = new Map(answer.value.next.map((one) => [one.token, one.text]));
      const items = answer.value.next.map((one) => ({ name: one.token, value: one.probability, able: one.text !== null }));
      box.append(bars(items, { go: (token) => add(pieces.get(token)) }));
    }
    return box;
  };
  const add = (piece) => {
    text.value += piece ?? "";
    text.dispatchEvent(new Event("input"));
    text.focus();
  };
  text.addEventListener("input", again);
  main.replaceChildren(text, found, savers("next", () => told, () => pictureOf(found)));
  if (!document.activeElement?.closest("nav")) text.focus(); // arrow keys go on from tab to tab
  again();
}
