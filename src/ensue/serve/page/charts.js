// Vega-Lite charts from the server, and interactive pages in sandboxed frames.
import { json, make, remember, settings } from "./ui.js";
import { savers } from "./downloads.js";

let script = null; // Vega, loaded for the first chart

function loadVega() {
  script ??= new Promise((done, broken) => {
    const onerror = () => broken(new Error("the chart library could not be loaded"));
    document.head.append(make("script", { src: "/page/vega.js", type: "module", onload: done, onerror }));
  });
  return script.catch((error) => {
    script = null;
    throw error;
  });
}

/** Draw a view; returns its numbers, or null if it was aborted. `chosen` is called with the datum of a clicked mark. */
export async function show(view, form, where, { signal, chosen } = {}) {
  const response = await json(`/api/look/${view}`, form, signal);
  await loadVega();
  if (signal?.aborted) return null;
  const canvas = make("div"), chart = make("div", { className: "chart", tabIndex: 0, role: "group", "aria-label": `chart: ${view}` }, canvas);
  const drawn = await window.vegaEmbed(canvas, response.chart, { ast: true, actions: false, renderer: "svg" });
  if (chosen) drawn.view.addEventListener("click", (_, mark) => mark?.datum && chosen(mark.datum));
  where.replaceChildren(chart, savers(view, () => response.numbers, () => drawn.view.toImageURL("png", 2)));
  return response.numbers;
}

/** An interactive page in a sandboxed frame. */
export function frame(page, form, title) {
  const address = `/api/page/${page}?${new URLSearchParams(form)}`, key = `${page}_step`, before = settings().get(key);
  const frame = make("iframe", { src: before ? `${address}#step=${before}` : address, title, sandbox: "allow-scripts allow-downloads", loading: "lazy" });
  addEventListener("message", function listener(event) { // keep the page's current step in the address
    if (!frame.isConnected) return removeEventListener("message", listener);
    if (event.source === frame.contentWindow && Number.isInteger(event.data?.step)) remember({ [key]: String(event.data.step) });
  });
  return make("div", {}, frame, make("p", { className: "soft" }, make("a", { href: address, target: "_blank", rel: "noopener" }, "open in a new tab")));
}
/** A collapsible section, filled when it is first opened; `key` keeps in the address whether it is open. */
export function folded(title, fill, { open = false, key = "" } = {}) {
  const state = key && settings().get(key);
  let now = state ? state === "1" : open;
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
