// Write: sampled completions, streamed token by token and shaded by probability.
import { area, button, choice, events, kept, labelled, make, nothing, number, remember, request, row, settings, showError, soft, some, visible } from "./ui.js";
import { moveWithArrows, shaded } from "./token_shading.js";
import { pictureOf, savers } from "./downloads.js";

const FIELDS = ["model", "prompt", "max_tokens", "temperature", "top_k", "top_p", "seed"];
const LINKED = 6; // samples that a link restores

export const title = "Write";
export function open(main) {
  if (!some("write")) return nothing(main, "can complete text", "ensue fit gpt my.txt --out runs/gpt");
  const model = choice("model", "write"), prompt = kept("text", area("Prompt", "once upon a time"));
  const count = kept("tokens", number(60, 1, 4096, 1)), temperature = kept("temperature", number(0.8, 0, 2, 0.1));
  const k = kept("k", number(0, 0, 100000, 1)), p = kept("p", number(0.95, 0.01, 1, 0.01)), seed = kept("seed", number(1, 0, 2 ** 31, 1));
  const tries = make("div", { className: "cards" }), samples = [];
  const errors = make("div");
  let controller = null, restoring = true, stopped = false;
  const stop = button("Stop", () => { stopped = true; controller?.abort(); }, { disabled: true });
  const link = () => {
    const stored = samples.slice(0, LINKED).map(({ form: own }) => FIELDS.map((name) => own[name]));
    if (!restoring && tries.isConnected) remember({ tries: stored.length ? JSON.stringify(stored) : "" });
  };
  const working = (on) => { // a disabled button loses the focus, so move it to the other one
    const focused = document.activeElement === (on ? go : stop);
    go.disabled = on;
    stop.disabled = !on;
    if (focused) (on ? stop : go).focus();
  };
  const attempt = async (form) => {
    const one = { form, tokens: [], text: "" };
    samples.unshift(one);
    link();
    const text = make("div", { className: "text" }, make("span", { className: "prompt" }, form.prompt)), aside = make("div", { className: "aside" });
    const box = make("article", { className: "card" }, make("h2", {}, `${form.model}, seed ${form.seed}, temperature ${form.temperature}`), text, aside);
    watch(text, aside);
    tries.prepend(box);
    working(true);
    controller = new AbortController();
    try {
      for await (const piece of events(await request("/v1/completions", { ...form, stream: true, logprobs: 5 }, controller.signal))) {
        if (!tries.isConnected) return controller.abort(); // another tab is open: stop generating
        text.append(token(piece.choices[0], one.tokens.length === 0));
        one.text += piece.choices[0].text;
        one.tokens.push(piece.choices[0].logprobs);
      }
    } catch (error) {
      if (!one.tokens.length) { // nothing was generated: remove the card
        samples.splice(samples.indexOf(one), 1);
        box.remove();
        showError(error, errors);
      } else if (error.name !== "AbortError") box.append(make("p", { className: "error", role: "alert" }, error.message));
      if (error.name === "AbortError") form.max_tokens = one.tokens.length; // so that a link restores the same length
      link();
    } finally {
      working(false);
    }
  };
  const go = button("Write", async () => {
    stopped = false;
    errors.replaceChildren();
    await attempt({ model: model.value, prompt: prompt.value, max_tokens: +count.value, temperature: +temperature.value, top_k: +k.value, top_p: +p.value, seed: +seed.value });
    if (!tries.isConnected) return; // another tab is open
    seed.value = String(+seed.value + 1);
    seed.dispatchEvent(new Event("input"));
  }, { className: "main" });
  main.replaceChildren(
    row(labelled("model", model), labelled("max tokens", count), labelled("temperature", temperature), labelled("top-k (0: all)", k), labelled("top-p", p), labelled("seed", seed)),
    prompt, row(go, stop), errors,
    soft("A stronger colour means a less likely token. Hover over a token, or move with the arrow keys, to see its alternatives."),
    tries, savers("write", () => samples, () => pictureOf(tries)));
  restore((form) => tries.isConnected && !stopped && attempt(form)).finally(() => { restoring = false; link(); });
}
/** Generate the samples of a link again: the same seed gives the same text. */
async function restore(attempt) {
  let stored = [];
  try {
    stored = JSON.parse(settings().get("tries") ?? "[]");
  } catch {
    return; // the link is malformed
  }
  for (const values of Array.isArray(stored) ? stored.slice(0, LINKED).reverse() : [])
    if (Array.isArray(values) && values.length === FIELDS.length) await attempt(Object.fromEntries(FIELDS.map((name, i) => [name, values[i]])));
}

/** A token with its probability and alternatives. */
function token({ text, logprobs }, first) {
  const logProb = logprobs?.token_logprobs[0] ?? 0;
  return shaded(text, logProb, { token: logprobs?.tokens[0] ?? text, p: Math.exp(logProb), best: logprobs?.top_logprobs[0] ?? {} }, first);
}
/** Show the alternatives of the token under the pointer. */
function watch(text, aside) {
  const tell = (event) => {
    const { details } = event.target;
    if (!details) return;
    const others = Object.entries(details.best).sort((a, b) => b[1] - a[1]).map(([token, value]) => `${visible(token)} ${Math.exp(value).toFixed(3)}`);
    aside.textContent = `${visible(details.token)}: P = ${details.p.toFixed(3)}; alternatives: ${others.join(", ")}`;
  };
  for (const kind of ["pointerover", "focusin", "click"]) text.addEventListener(kind, tell);
  moveWithArrows(text);
}
