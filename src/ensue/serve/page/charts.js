// Charts that the server describes and the browser draws, and pages in frames of their own.
import { json, make, remember, settings } from "./kit.js";
import { savers } from "./saving.js";

let script = null; // what draws charts, loaded when the first is wanted

function drawing() {
  script ??= new Promise((done, broken) => {
    const onerror = () => broken(new Error("charts cannot be drawn"));
    document.head.append(make("script", { src: "/page/vega.js", type: "module", onload: done, onerror }));
  });
  return script.catch((error) => {
    script = null;
    throw error;
  });
}

/** A view as the server sees it, drawn; answers its numbers, or nothing where it is no longer wanted. `chosen` is told
    of a mark that was clicked. */
export async function show(view, form, where, { signal, chosen } = {}) {
  const seen = await json(`/api/look/${view}`, form, signal);
  await drawing();
  if (signal?.aborted) return null;
  const held = make("div"), chart = make("div", { className: "chart", tabIndex: 0, role: "group", "aria-label": `chart: ${view}` }, held);
  const drawn = await window.vegaEmbed(held, seen.chart, { ast: true, actions: false, renderer: "svg" });
  if (chosen) drawn.view.addEventListener("click", (_, mark) => mark?.datum && chosen(mark.datum));
  where.replaceChildren(chart, savers(view, () => seen.numbers, () => drawn.view.toImageURL("png", 2)));
  return seen.numbers;
}

/** A page that one steps through, in a frame that can reach nothing. */
export function frame(page, form, title) {
  const address = `/api/page/${page}?${new URLSearchParams(form)}`, key = `${page}_step`, before = settings().get(key);
  const held = make("iframe", { src: before ? `${address}#step=${before}` : address, title, sandbox: "allow-scripts allow-downloads", loading: "lazy" });
  addEventListener("message", function told(event) { // the step that the page stands at is part of the link
    if (!held.isConnected) return removeEventListener("message", told);
    if (event.source === held.contentWindow && Number.isInteger(event.data?.step)) remember({ [key]: String(event.data.step) });
  });
  return make("div", {}, held, make("p", { className: "soft" }, make("a", { href: address, target: "_blank", rel: "noopener" }, "open it alone")));
}
/** What opens when it is wanted, and is made then; the address remembers under `key` whether it is open. */
export function folded(title, fill, { open = false, key = "" } = {}) {
  const held = key && settings().get(key);
  let now = held ? held === "1" : open;
  const inside = make("div"), details = make("details", { open: now }, make("summary", {}, title), inside);
  let filled = false;
  const once = () => {
    if (key && details.open !== now && details.isConnected) remember({ [key]: (now = details.open) ? "1" : "0" });
    if (details.open && !filled) {
      filled = true;
      fill(inside);
    }
  };
  details.addEventListener("toggle", once);
  once();
  return details;
}
