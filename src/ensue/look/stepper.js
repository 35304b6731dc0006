const steps = data.steps, PACE = 1600, slider = find("slider"); // milliseconds per step while playing
let at = Math.min(steps.length - 1, Number(linkedStep ?? 0)), timer = null;

function draw(tag, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}
// Update title, description and controls; `show` in the page's own script draws the step first.
function describe(step) {
  find("title").textContent = step.title;
  find("description").replaceChildren(make("span", step.title + ". ", "spoken"), step.text);
  reportStep(at);
  slider.value = at;
  slider.setAttribute("aria-valuetext", step.title);
  for (const [id, end] of [["first", 0], ["back", 0], ["next", steps.length - 1], ["last", steps.length - 1]])
    find(id).setAttribute("aria-disabled", at === end);
}
function go(to) {
  at = Math.max(0, Math.min(steps.length - 1, to));
  show();
}
function setPlaying(playing) {
  const name = playing ? "Pause" : "Play";
  find("play").textContent = name;
  find("play").setAttribute("aria-label", name);
  find("description").setAttribute("aria-live", playing ? "off" : "polite"); // speech could not keep up
}
function pause() {
  clearInterval(timer);
  timer = null;
  setPlaying(false);
}
function play() {
  setPlaying(true);
  if (at === steps.length - 1) go(0);
  timer = setInterval(() => { go(at + 1); if (at === steps.length - 1) pause(); }, PACE);
}
const keys = { ArrowLeft: () => at - 1, ArrowRight: () => at + 1, Home: () => 0, End: () => steps.length - 1 };
document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.altKey || event.metaKey || event.shiftKey || event.target === slider) return;
  if (!(event.key in keys)) return;
  event.preventDefault();
  pause();
  go(keys[event.key]());
});
for (const [id, key] of [["first", "Home"], ["back", "ArrowLeft"], ["next", "ArrowRight"], ["last", "End"]])
  find(id).addEventListener("click", () => { pause(); go(keys[key]()); });
find("play").addEventListener("click", () => timer === null ? play() : pause());
slider.addEventListener("input", () => { pause(); go(Number(slider.value)); });
addEventListener("resize", () => show());
addEventListener("DOMContentLoaded", () => { document.querySelector("main").hidden = false; show(); });
