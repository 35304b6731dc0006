const data = JSON.parse(document.getElementById("data").textContent), steps = data.steps, PACE = 1600;
const find = id => document.getElementById(id), slider = find("slider");
let at = asked ? Math.min(steps.length - 1, Number(asked[1])) : 0, timer = null;

function make(kind, text, name) {
  const made = document.createElement(kind);
  if (text !== undefined) made.textContent = text;
  if (name) made.className = name;
  return made;
}
function draw(kind, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", kind);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}
// What every step tells; `show` of the page's own script draws it first.
function tell(step) {
  find("title").textContent = step.title;
  find("told").replaceChildren(make("span", step.title + ". ", "spoken"), step.text);
  stands(at);
  slider.value = at;
  slider.setAttribute("aria-valuetext", step.title);
  for (const [id, end] of [["first", 0], ["back", 0], ["next", steps.length - 1], ["last", steps.length - 1]])
    find(id).setAttribute("aria-disabled", at === end);
}
function go(to) {
  at = Math.max(0, Math.min(steps.length - 1, to));
  show();
}
function pause() {
  clearInterval(timer);
  timer = null;
  find("play").textContent = "Play";
  find("play").setAttribute("aria-label", "Play");
  find("told").setAttribute("aria-live", "polite");
}
function play() {
  find("told").setAttribute("aria-live", "off");  // else a reader would never get to the end of a step
  find("play").textContent = "Pause";
  find("play").setAttribute("aria-label", "Pause");
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
