// Inside an RNN: gates and states over a text, the gradient that reaches back, backpropagation through time by steps.
import { area, choice, hall, kept, labelled, latest, make, nothing, number, remember, row, soft, some, ticked, valid } from "./kit.js";
import { folded, frame, show } from "./charts.js";

export const title = "Inside an RNN";
export function open(main) {
  if (!some("inside")) {
    nothing(main, "is a recurrent language model", "ensue fit lstm my.txt --out runs/lstm");
    main.append(stepper());
    return;
  }
  const model = choice("model", "inside"), text = kept("text", area("Text", "the students opened their books"));
  const layer = kept("layer", number(0, 0, 100, 1)), units = kept("units", number(0, 0, 1000, 1));
  const all = kept("all", make("input", { type: "checkbox", checked: false }));
  const gates = make("div"), gradients = make("div");
  const others = hall.runs.filter((one) => one.can.includes("inside")).map((one) => one.id);
  const draw = (view, where, form) => latest(350, where, async (signal) => {
    if (!text.value.trim()) return where.replaceChildren(make("p", {}, "Type a text."));
    await show(view, form(), where, { signal });
  });
  const inside = draw("gates", gates, () => ({ models: [model.value], text: text.value, layer: +layer.value, units: +units.value }));
  const back = draw("gradients", gradients, () => ({ models: all.checked ? others.slice(0, 8) : [model.value], text: text.value, layer: all.checked ? 0 : +layer.value }));
  for (const field of [model, text, layer]) field.addEventListener("input", () => { inside(); back(); });
  units.addEventListener("input", inside);
  all.addEventListener("input", back);
  main.replaceChildren(
    row(labelled("model", model), labelled("layer (0: the last)", layer), labelled("units (0: what fits)", units)), text,
    make("h2", {}, "Gates and states over the text"), gates,
    make("h2", {}, "The gradient that reaches back"), row(ticked("all recurrent runs together", all)), gradients,
    stepper());
  inside();
  back();
}

/** A small network of its own, written out. */
function stepper() {
  const steps = kept("steps", number(3, 1, 8, 1)), hidden = kept("hidden", number(1, 1, 4, 1)), cut = kept("cut", number(0, 0, 8, 1)), seed = kept("seed", number(0, 0, 2 ** 31 - 1, 1));
  const where = make("div");
  const again = latest(300, where, async () => {
    cut.max = steps.value; // there is nothing behind the last step
    valid(steps, hidden, cut, seed);
    where.replaceChildren(frame("bptt", { steps: steps.value, hidden: hidden.value, cut: cut.value, seed: seed.value }, "Backpropagation through time"));
  });
  for (const field of [steps, hidden, cut, seed]) field.addEventListener("input", () => { remember({ bptt_step: "" }); again(); });
  const fill = (inside) => {
    inside.append(soft("A small network of its own: every value forwards, and every factor of the gradient backwards."),
      row(labelled("steps", steps), labelled("hidden", hidden), labelled("cut after (0: never)", cut), labelled("seed", seed)), where);
    again();
  };
  return folded("Backpropagation through time, step by step", fill, { open: true, key: "bptt_open" });
}
