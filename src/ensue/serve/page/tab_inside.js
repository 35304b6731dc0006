// Inside an RNN: gates and states over a text, gradients over time, and backpropagation through time step by step.
import { area, choice, kept, labelled, latest, make, nothing, number, remember, row, soft, some, ticked, valid, withCapability } from "./ui.js";
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
  const others = withCapability("inside").map((one) => one.id);
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
    row(labelled("model", model), labelled("layer (0: last)", layer), labelled("units (0: as many as fit)", units)), text,
    make("h2", {}, "Gates and states over the text"), gates,
    make("h2", {}, "Gradient norms back through time"), row(ticked("compare all recurrent runs", all)), gradients,
    stepper());
  inside();
  back();
}

/** Backpropagation in a small network, step by step. */
function stepper() {
  const steps = kept("steps", number(3, 1, 8, 1)), hidden = kept("hidden", number(1, 1, 4, 1)), cut = kept("cut", number(0, 0, 8, 1)), seed = kept("seed", number(0, 0, 2 ** 31 - 1, 1));
  const where = make("div");
  const again = latest(300, where, async () => {
    cut.max = steps.value; // it cannot be cut after the last step
    valid(steps, hidden, cut, seed);
    where.replaceChildren(frame("bptt", { steps: steps.value, hidden: hidden.value, cut: cut.value, seed: seed.value }, "Backpropagation through time"));
  });
  for (const field of [steps, hidden, cut, seed]) field.addEventListener("input", () => { remember({ bptt_step: "" }); again(); });
  const fill = (inside) => {
    inside.append(soft("A small network: every value of the forward pass, and every factor of the gradient in the backward pass."),
      row(labelled("steps", steps), labelled("hidden size", hidden), labelled("truncate after (0: never)", cut), labelled("seed", seed)), where);
    again();
  };
  return folded("Backpropagation through time, step by step", fill, { open: true, key: "bptt_open" });
}
