// The page of `ensue serve`. Text of people and models is only ever set as text, never as markup.

const main = document.getElementById("main");
const said = document.getElementById("said");
let models = [];
let drawing = null; // the script that draws charts, loaded when the first is wanted

/** An element with properties, attributes (those with a dash or in lower case) and children. */
function make(tag, options = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && name !== "list") element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

const labelled = (name, field) => make("label", {}, name, field);
const number = (value, low, high, step = "any") =>
  make("input", { type: "number", value: String(value), min: String(low), max: String(high), step: String(step) });

/** Ask the server; what it refuses is an error with its sentence. */
async function ask(path, form, signal) {
  const how = form ? { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(form), signal } : { signal };
  const answer = await fetch(path, how);
  if (!answer.ok) {
    const told = await answer.json().catch(() => null);
    throw new Error(told?.error?.message ?? `the server answered ${answer.status}`);
  }
  return answer;
}
const json = async (path, form, signal) => (await ask(path, form, signal)).json();

function failed(error, where) {
  if (error.name !== "AbortError") where.replaceChildren(make("p", { className: "error", role: "alert" }, error.message));
}

// What a view is of stands in the address, so that a link brings it back.
const settings = () => new URLSearchParams(location.hash.slice(1));
function remember(values) {
  const held = settings();
  for (const [name, value] of Object.entries(values)) value === "" ? held.delete(name) : held.set(name, value);
  history.replaceState(null, "", `#${held}`);
}
/** A field whose value the address remembers. */
function kept(name, field) {
  const before = settings().get(name);
  if (before !== null) field.type === "checkbox" ? (field.checked = before === "1") : (field.value = before);
  field.addEventListener("input", () => remember({ [name]: field.type === "checkbox" ? (field.checked ? "1" : "") : field.value }));
  return field;
}

const writing = (model) => model.task === "language" && model.system !== "bilm";
const attending = (model) => ["gpt", "bert", "roberta", "transformer", "seq2seq", "convs2s"].includes(model.system);
const labelling = (model) => ["classify", "pair", "regress", "choose", "tag", "answer"].includes(model.task);

function choice(name, fit) {
  const field = make("select", {}, ...models.filter(fit).map((one) => make("option", { value: one.id }, `${one.id} (${one.system})`)));
  kept(name, field);
  if (field.selectedIndex < 0) field.selectedIndex = 0;
  return field;
}
function nothing(what, how) {
  main.replaceChildren(make("p", {}, `None of these runs ${what}. `, make("code", {}, how)));
}

async function draw(view, form, where, signal) {
  const seen = await json(`/api/look/${view}`, form, signal);
  const stale = () => signal?.aborted ?? false;
  drawing ??= new Promise((done, broken) => {
    document.head.append(make("script", { src: "/page/vega.js", type: "module", onload: done, onerror: () => broken(new Error("charts cannot be drawn")) }));
  });
  await drawing.catch((error) => { drawing = null; throw error; });
  if (stale()) return;
  const chart = make("div", { className: "chart" });
  where.replaceChildren(chart, make("div", { className: "row" }, saver(`${view}.json`, () => JSON.stringify(seen.numbers))));
  const drawn = await window.vegaEmbed(chart, seen.chart, { ast: true, actions: false, renderer: "svg" });
  const picture = make("button", { type: "button", onclick: async () => save(`${view}.png`, await drawn.view.toImageURL("png", 2)) }, "PNG");
  where.lastChild.prepend(picture);
}
function save(name, address) {
  make("a", { href: address, download: name }).click();
}
function saver(name, text) {
  const go = () => {
    const address = URL.createObjectURL(new Blob([text()], { type: "application/json" }));
    save(name, address);
    URL.revokeObjectURL(address);
  };
  return make("button", { type: "button", onclick: go }, "JSON");
}

/** Calls that come fast after each other are one, the last; what was under way is given up. */
function latest(wait, work) {
  let timer, under;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      under?.abort();
      under = new AbortController();
      work(under.signal);
    }, wait);
  };
}

const tabs = {
  runs: {
    title: "Runs",
    show() {
      const cards = models.map((one) =>
        make("article", { className: "card" }, make("h2", {}, one.id),
          make("p", {}, `${one.system}, ${one.task}`),
          make("p", {}, one.parameters ? `${one.parameters.toLocaleString("en")} parameters` : "counts, no parameters"),
          make("p", {}, `made ${new Date(one.created * 1000).toLocaleString()}`)));
      const curves = make("div");
      const trained = models.map((one) => one.id).slice(0, 8);
      main.replaceChildren(make("div", { className: "cards" }, ...cards), curves);
      draw("curves", { models: trained }, curves).catch((error) => failed(error, curves));
    },
  },
  next: {
    title: "Next word",
    show() {
      if (!models.some(writing)) return nothing("goes on with a text", "ensue fit lstm my.txt --out runs/lstm");
      const text = kept("text", make("textarea", { placeholder: "the students opened their", "aria-label": "Text" }));
      const found = make("div", { className: "cards", "aria-live": "polite" });
      const again = latest(150, async (signal) => {
        const form = { text: text.value, top: 10 };
        const answers = await Promise.allSettled(models.filter(writing).map((one) => json("/api/next", { model: one.id, ...form }, signal)));
        if (signal.aborted) return;
        found.replaceChildren(...answers.map((answer, place) => card(models.filter(writing)[place], answer)));
      });
      const card = (model, answer) => {
        const box = make("section", { className: "card" }, make("h2", {}, `${model.id} (${model.system})`));
        if (answer.status === "rejected") box.append(make("p", { className: "error" }, answer.reason.message));
        else box.append(make("ol", { className: "bars" }, ...answer.value.next.map(bar)));
        return box;
      };
      const bar = ({ token, text: piece, probability }) => {
        const go = () => {
          text.value += piece ?? "";
          text.dispatchEvent(new Event("input"));
          text.focus();
        };
        const share = make("span", { className: "bar" });
        share.style.width = `${100 * probability}%`;
        return make("li", {}, make("button", { type: "button", onclick: go, disabled: piece === null }, share, make("span", {}, token), make("span", { className: "number" }, probability.toFixed(3))));
      };
      text.addEventListener("input", again);
      main.replaceChildren(text, found);
      if (!document.activeElement?.closest("nav")) text.focus(); // arrow keys go on from tab to tab
      again();
    },
  },
  write: {
    title: "Write",
    show() {
      if (!models.some(writing)) return nothing("writes", "ensue fit gpt my.txt --out runs/gpt");
      const model = choice("model", writing), prompt = kept("text", make("textarea", { "aria-label": "Prompt" }));
      const count = kept("tokens", number(60, 1, 4096, 1)), heat = kept("temperature", number(0.8, 0, 2));
      const k = kept("k", number(0, 0, 100000, 1)), p = kept("p", number(0.95, 0.01, 1)), seed = kept("seed", number(1, 0, 2 ** 31, 1));
      const go = make("button", { type: "button", className: "main" }, "Write"), stop = make("button", { type: "button", disabled: true }, "Stop");
      const tries = make("div", { className: "cards" });
      let under = null;
      stop.addEventListener("click", () => under?.abort());
      go.addEventListener("click", async () => {
        const form = { model: model.value, prompt: prompt.value, max_tokens: +count.value, temperature: +heat.value, top_k: +k.value, top_p: +p.value, seed: +seed.value, stream: true, logprobs: 5 };
        const text = make("div", { className: "text" }, prompt.value);
        const box = make("article", { className: "card" }, make("h2", {}, `${form.model}, seed ${form.seed}`), text);
        tries.prepend(box);
        go.disabled = !(stop.disabled = false);
        under = new AbortController();
        try {
          for await (const piece of events(await ask("/v1/completions", form, under.signal))) {
            if (piece.error) throw new Error(piece.error.message);
            text.append(shaded(piece.choices[0]));
          }
        } catch (error) {
          if (error.name !== "AbortError") box.append(make("p", { className: "error", role: "alert" }, error.message));
        } finally {
          go.disabled = !(stop.disabled = true);
          seed.value = String(+seed.value + 1);
          seed.dispatchEvent(new Event("input"));
        }
      });
      main.replaceChildren(
        make("div", { className: "row" }, labelled("model", model), labelled("tokens", count), labelled("temperature", heat), labelled("top-k (0: all)", k), labelled("top-p", p), labelled("seed", seed)),
        prompt, make("div", { className: "row" }, go, stop),
        make("p", { className: "number" }, "The darker a piece, the less likely it was. Every try stays."), tries);
    },
  },
  translate: {
    title: "Translate",
    show() {
      const able = (one) => one.task === "translation";
      if (!models.some(able)) return nothing("translates", "ensue fit transformer dates --out runs/dates");
      const model = choice("model", able), text = kept("text", make("textarea", { "aria-label": "Sentence" })), beam = kept("beam", number(4, 1, 16, 1));
      const answer = make("div"), alignment = make("div"), tree = make("div");
      const go = make("button", { type: "button", className: "main" }, "Translate");
      go.addEventListener("click", async () => {
        go.disabled = true;
        try {
          const form = { model: model.value, lines: [text.value.replaceAll("\n", " ")], beam: +beam.value, nbest: +beam.value, trace: true };
          const found = await json("/api/translate", form);
          const rows = found.translations[0].nbest.map((one) => make("tr", {}, make("td", { className: "number" }, one.score.toFixed(3)), make("td", { className: "number" }, one.log_prob.toFixed(3)), make("td", {}, one.text)));
          const head = make("tr", {}, ...["score", "log P", "translation"].map((name) => make("th", { scope: "col" }, name)));
          answer.replaceChildren(make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows)));
          tree.replaceChildren(searched(found.trace));
          await draw("alignment", { models: [model.value], text: form.lines[0] }, alignment).catch((error) => failed(error, alignment));
        } catch (error) {
          failed(error, answer);
        } finally {
          go.disabled = false;
        }
      });
      main.replaceChildren(make("div", { className: "row" }, labelled("model", model), labelled("beam", beam)), text, make("div", { className: "row" }, go), answer, tree, alignment);
    },
  },
  attention: {
    title: "Attention",
    show() {
      if (!models.some(attending)) return nothing("attends", "ensue fit gpt my.txt --out runs/gpt");
      const model = choice("model", attending), text = kept("text", make("textarea", { "aria-label": "Text" }));
      const layer = kept("layer", number(0, 0, 1000, 1)), head = kept("head", number(0, 0, 1000, 1));
      const word = kept("word", make("input", { size: 10 })), rolled = kept("rolled", make("input", { type: "checkbox" }));
      const seen = make("div", { "aria-live": "polite" });
      const again = latest(350, async (signal) => {
        if (!text.value.trim()) return seen.replaceChildren(make("p", {}, "Type a sentence."));
        const form = { models: [model.value], text: text.value, layer: +layer.value, head: +head.value, word: word.value, rolled: rolled.checked };
        await draw("attention", form, seen, signal).catch((error) => failed(error, seen));
      });
      for (const field of [model, text, layer, head, word, rolled]) field.addEventListener("input", again);
      main.replaceChildren(
        make("div", { className: "row" }, labelled("model", model), labelled("layer (0: all)", layer), labelled("head (0: all)", head), labelled("one word", word), make("label", { className: "flat" }, rolled, "rolled out")), text, seen);
      again();
    },
  },
  tasks: {
    title: "Tasks",
    show() {
      const able = (one) => labelling(one) || one.task === "masked";
      if (!models.some(able)) return nothing("labels", "ensue fit classify train.tsv --model lstm --out runs/labels");
      const model = choice("model", able), text = kept("text", make("textarea", { "aria-label": "Text", placeholder: "a text; for an encoder with [MASK] in it" }));
      const answer = make("div", { "aria-live": "polite" });
      const go = make("button", { type: "button", className: "main" }, "Ask");
      go.addEventListener("click", async () => {
        const masked = models.find((one) => one.id === model.value).task === "masked";
        try {
          const found = masked ? await json("/api/fill", { model: model.value, text: text.value }) : await json("/api/predict", { model: model.value, texts: [text.value] });
          answer.replaceChildren(masked ? filled(found) : fields(found.predictions[0]));
        } catch (error) {
          failed(error, answer);
        }
      });
      main.replaceChildren(make("div", { className: "row" }, labelled("model", model)), text, make("div", { className: "row" }, go), answer);
    },
  },
};

/** Events of a stream, as objects. */
async function* events(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (waiting + value).split("\n\n");
    waiting = parts.pop();
    for (const part of parts) if (part.startsWith("data: {")) yield JSON.parse(part.slice(6));
  }
}
function shaded({ text, logprobs }) {
  const cost = -(logprobs?.token_logprobs[0] ?? 0), best = logprobs?.top_logprobs[0] ?? {};
  const others = Object.entries(best).map(([token, value]) => `${token} ${Math.exp(value).toFixed(3)}`).join("\n");
  const span = make("span", { tabIndex: 0, title: `P = ${Math.exp(-cost).toFixed(3)}\n${others}` }, text);
  span.style.setProperty("--cost", Math.min(0.85, cost / 8).toFixed(3));
  return span;
}
function searched(trace) {
  const steps = Math.max(0, ...trace.nodes.map((node) => node.step));
  const at = number(1, 1, Math.max(1, steps), 1), rows = make("tbody");
  const show = () => {
    const here = trace.nodes.filter((node) => node.step === +at.value);
    rows.replaceChildren(...here.map((node) => make("tr", {}, make("td", {}, path(node)), make("td", { className: "number" }, node.log_prob.toFixed(3)), make("td", { className: "number" }, node.total.toFixed(3)), make("td", {}, `${node.fate}: ${node.why}`))));
  };
  const byId = new Map(trace.nodes.map((node) => [node.id, node]));
  const path = (node) => (node && node.token !== null ? `${path(byId.get(node.parent))} ${node.token}`.trim() : "");
  at.addEventListener("input", show);
  show();
  const head = make("tr", {}, ...["hypothesis", "log P", "sum", "what became of it"].map((name) => make("th", { scope: "col" }, name)));
  return make("details", {}, make("summary", {}, "The search, step by step"), make("div", { className: "row" }, labelled(`step (of ${steps})`, at)), make("table", {}, make("thead", {}, head), rows));
}
function fields(found) {
  const rows = Object.entries(found).map(([name, value]) => make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, typeof value === "object" ? JSON.stringify(value) : String(value))));
  return make("table", {}, make("tbody", {}, ...rows));
}
function filled({ text, gaps }) {
  const lists = gaps.map((gap) => make("ol", {}, ...gap.map((one) => make("li", {}, `${one.token} ${one.probability.toFixed(3)}`))));
  return make("div", {}, make("p", { className: "text" }, text), ...lists);
}

function open(name) {
  if (!Object.hasOwn(tabs, name ?? "")) name = "runs";
  const tab = tabs[name];
  for (const button of document.querySelectorAll("nav button")) {
    const own = button.dataset.tab === name;
    button.setAttribute("aria-selected", String(own));
    button.tabIndex = own ? 0 : -1;
  }
  said.textContent = "";
  tab.show();
}
function build() {
  const nav = document.querySelector("nav"), names = Object.keys(tabs);
  nav.append(...names.map((name) => {
    const button = make("button", { type: "button", role: "tab", onclick: () => { remember({ tab: name }); open(name); } }, tabs[name].title);
    button.dataset.tab = name;
    return button;
  }));
  nav.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    const place = names.indexOf(event.target.dataset.tab) + by;
    const next = nav.children[(place + names.length) % names.length];
    next.focus();
    next.click();
  });
  document.getElementById("link").addEventListener("click", async () => {
    await navigator.clipboard.writeText(location.href).then(() => (said.textContent = "copied"), () => (said.textContent = location.href));
  });
  addEventListener("hashchange", () => open(settings().get("tab")));
}

build();
json("/v1/models").then((found) => {
  models = found.data;
  open(settings().get("tab") ?? (models.some(writing) ? "next" : "runs"));
}, (error) => failed(error, main));
