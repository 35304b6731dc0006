// System prompt and sampling settings of a conversation.
import { area, kept, labelled, make, number, row, soft, valid } from "./ui.js";

/** The fields, folded; `values` are those of a request, `check` says what is wrong with them. */
export function settingsForm(prompt) {
  const system = Object.assign(area("System prompt", "empty: the model's own"), { value: prompt });
  const temperature = kept("temperature", number(0.2, 0, 2, 0.1)), p = kept("p", number(0.9, 0.01, 1, 0.01)), k = kept("k", number(0, 0, 100000, 1));
  const tokens = kept("tokens", number(512, 1, 4096, 1)), seed = kept("seed", number("", 0, 2 ** 31, 1));
  seed.required = false;
  seed.placeholder = "random";
  const fields = [temperature, p, k, tokens, seed];
  const element = make("details", {}, make("summary", {}, "Settings"),
    labelled("system prompt", system),
    row(labelled("temperature", temperature), labelled("top-p", p), labelled("top-k (0: all)", k), labelled("max tokens", tokens), labelled("seed", seed)),
    soft("With a seed, the n-th answer to a message uses seed + n − 1. Shades and alternatives are the model's own probabilities, before temperature, top-p and top-k. A stronger colour means a less likely token: point at it, tap it, or move with the arrow keys."),
    soft("When a conversation is longer than the model's context, the model reads on from the newer half of it, and no longer sees older messages nor the system prompt. Past 8,192 tokens the server refuses a message. Models here answer with text only: they call no tools."));
  const draw = () => crypto.getRandomValues(new Uint32Array(1))[0] >>> 1;
  const values = (tries) => ({ temperature: +temperature.value, top_p: +p.value, top_k: +k.value, max_tokens: +tokens.value, seed: seed.value === "" ? draw() : +seed.value + tries });
  const check = (status) => {
    try {
      valid(...fields);
      status.textContent = "";
      return true;
    } catch (error) {
      element.open = true;
      status.textContent = error.message;
      return false;
    }
  };
  return { element, system, values, check };
}
