// Draw a time series with the mouse, touch or keys, and see its forecast.
import { busy, button, draw, json, kept, labelled, latest, make, notes, number, remember, row, settings, soft } from "./ui.js";
import { pictureOfSvg, savers } from "./downloads.js";

const HEIGHT = 260, EDGE = 8, LEFT = 24, FOOT = 22, round = (value) => Number(value.toPrecision(3));
const MARKS = 500, whole = (value) => Math.round(MARKS * (value + 1)), part = (mark) => mark / MARKS - 1; // values are rounded to fit into a link

export function seriesEditor(container, model) {
  const { window: wide, horizon, names, targets } = model.series;
  if (targets !== 1 || names.length !== 1)
    return container.replaceChildren(soft(`${model.id} reads several columns (${names.join(", ")}), which cannot be drawn here; use /api/forecast.`));
  const count = Math.max(wide, 2), ahead = kept("ahead", number(horizon, 1, 500, 1)), low = number(round(model.series.low), -1e12, 1e12), high = number(round(model.series.high), -1e12, 1e12);
  const values = restored(count) ?? Array.from({ length: count }, (_, at) => part(whole(0.6 * Math.sin((6.28 * at) / Math.max(8, count / 3)))));
  let response = { steps: [] }, selected = count - 1, announcement = "";
  const svg = draw("svg", { role: "application", tabindex: "0", "aria-label": `${count} past steps: draw them with the pointer, or select a step with the left and right keys and move it with up and down`, class: "pad" });
  const caption = make("p", { className: "soft", "aria-live": "polite" });
  const span = () => [Math.min(+low.value, +high.value - 1e-9), Math.max(+high.value, +low.value + 1e-9)];
  const steps = () => count + Math.max(1, response.steps.length);
  const x = (at) => LEFT + ((svg.clientWidth - LEFT - EDGE) * at) / (steps() - 1);
  const y = (value) => { const [least, most] = span(); return HEIGHT - FOOT - ((HEIGHT - FOOT - EDGE) * (value - least)) / (most - least); };
  const real = (value) => { const [bottom, top] = span(); return bottom + (value + 1) * 0.5 * (top - bottom); };
  const line = (points) => points.map(([at, value], index) => `${index ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  const paint = () => {
    const past = values.map((value, at) => [at, real(value)]), joint = past.at(-1);
    const middle = response.steps.map((step, at) => [count + at, step.forecast[names[0]]]);
    const [bottom, top] = span(), name = (value, at, end, where) => { const text = draw("text", { x: at, y: end, "text-anchor": where }); text.textContent = value; return text; };
    const parts = [draw("path", { class: "axis", d: `M${x(count - 1)} 0V${HEIGHT}` }), name(String(top), LEFT + 4, 16, "start"), name(String(bottom), LEFT + 4, HEIGHT - FOOT - 4, "start"), name("now", x(count - 1) - 6, 16, "end"), name("steps", (LEFT + svg.clientWidth) / 2, HEIGHT - 7, "middle")];
    const series = name(names[0], 0, 0, "middle");
    series.setAttribute("transform", `translate(15 ${(HEIGHT - FOOT) / 2}) rotate(-90)`);
    parts.push(series);
    const bands = response.steps.map((step) => Object.values(step.quantiles?.[names[0]] ?? {}));
    if (bands.length && bands[0].length > 1) {
      const up = bands.map((one, at) => [count + at, Math.max(...one)]), down = bands.map((one, at) => [count + at, Math.min(...one)]).reverse();
      parts.push(draw("path", { class: "band", d: `${line([joint, ...up, ...down])}Z` }));
    }
    parts.push(draw("path", { class: "past", d: line(past) }));
    if (middle.length) parts.push(draw("path", { class: "ahead", d: line([joint, ...middle]) }));
    parts.push(draw("circle", { class: "here", cx: x(selected), cy: y(real(values[selected])), r: 4 }));
    svg.replaceChildren(draw("title", {}, "Past values and forecast"), ...parts);
  };
  const expect = latest(200, caption, async (signal) => {
    const past = values.map((value) => [real(value)]);
    response = { past: past.flat(), ...(await json("/api/forecast", { model: model.id, values: past, horizon: +ahead.value }, signal)) };
    const next = response.steps.map((step) => step.forecast[names[0]]);
    caption.replaceChildren(...notes(response).map((note) => make("span", {}, `${note.textContent} `)), `${announcement}${names[0]}: next ${next.slice(0, 4).map((value) => value.toPrecision(4)).join(", ")}${next.length > 4 ? " …" : ""}`);
    paint();
  });
  const changed = () => {
    values.forEach((value, at) => (values[at] = part(whole(value)))); // rounded as in the link
    paint();
    remember({ drawn: values.map((value) => whole(value).toString(36)).join("."), low: low.value, high: high.value });
    expect();
  };
  let last = null;
  const point = (event) => {
    const box = svg.getBoundingClientRect();
    const at = Math.round(((event.clientX - box.left - LEFT) / (box.width - LEFT - EDGE)) * (steps() - 1));
    const value = Math.max(-1, Math.min(1, 1 - (2 * (event.clientY - box.top - EDGE)) / (HEIGHT - FOOT - EDGE)));
    const from = last ?? { at, value }; // a fast pointer skips steps: interpolate them
    for (let step = Math.min(from.at, at); step <= Math.max(from.at, at); step++)
      if (step >= 0 && step < count) values[step] = from.at === at ? value : from.value + ((value - from.value) * (step - from.at)) / (at - from.at);
    last = { at, value };
    announcement = "";
    selected = Math.max(0, Math.min(count - 1, at));
    changed();
  };
  svg.addEventListener("pointerdown", (event) => { svg.setPointerCapture(event.pointerId); last = null; point(event); });
  svg.addEventListener("pointermove", (event) => { if (event.buttons) point(event); });
  svg.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 0.05], ArrowDown: [0, -0.05] }[event.key];
    if (!by) return;
    event.preventDefault();
    selected = Math.max(0, Math.min(count - 1, selected + by[0]));
    values[selected] = Math.max(-1, Math.min(1, values[selected] + by[1]));
    by[1] ? changed() : paint();
    announcement = `step ${selected + 1}: ${real(values[selected]).toPrecision(4)}. `;
    caption.textContent = announcement;
  });
  const shapeButton = (shape) => button(shape.name, () => { values.forEach((_, at) => (values[at] = shape.at(at / count))); changed(); });
  const shapes = [{ name: "wave", at: (t) => 0.7 * Math.sin(18.85 * t) }, { name: "step", at: (t) => (t < 0.5 ? -0.4 : 0.4) }, { name: "growth", at: (t) => -0.8 + 1.3 * t }];
  for (const field of [low, high]) { const stored = settings().get(field === low ? "low" : "high"); if (stored) field.value = stored; field.addEventListener("input", changed); }
  ahead.addEventListener("input", expect);
  container.replaceChildren(
    soft("Draw the past with the pointer. The forecast is right of the line, with its quantile band if the run has quantiles."),
    row(labelled("steps ahead", ahead), labelled("minimum", low), labelled("maximum", high), ...shapes.map(shapeButton)),
    svg, caption, savers("forecast", () => response, () => pictureOfSvg(svg, `${model.id}: ${names[0]}, with forecast`)));
  busy(caption, async () => { paint(); expect(); });
  new ResizeObserver(() => paint()).observe(svg);
}
/** The series in the address, if any. */
function restored(count) {
  const stored = settings().get("drawn")?.split(".").map((one) => part(parseInt(one, 36)));
  return stored?.length === count && stored.every(Number.isFinite) ? stored : null;
}
