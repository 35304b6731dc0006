"use strict";
// Shared by all pages. A page opens at the step in its address, reports its step to a page that frames it, and ends with
// buttons to save its drawing and its numbers.
const find = id => document.getElementById(id);
const data = JSON.parse(find("data").textContent);
const linkedStep = /^#step=(\d+)$/.exec(location.hash)?.[1];

function make(tag, text, className) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return element;
}
function definitions(pairs) {
  const list = make("dl");
  for (const [name, value] of pairs) {
    const pair = make("div");
    pair.append(make("dt", name), make("dd", value));
    list.append(pair);
  }
  return list;
}
function reportStep(step) {
  if (parent !== window) parent.postMessage({ step }, "*");
}
function save(name, address) {
  const link = make("a");
  link.href = address;
  link.download = name;
  link.click();
}
const EDGE = 8; // outlines of shapes at the border extend beyond the drawing
const STYLES = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "visibility", "font", "text-anchor"];
async function toPng() {
  const svg = [...document.querySelectorAll("main svg")].find(one => one.clientWidth), copy = svg.cloneNode(true);
  const size = [svg.clientWidth, svg.clientHeight].map(one => one + 2 * EDGE), scale = Math.min(2, 8000 / Math.max(...size));
  const copies = [copy, ...copy.querySelectorAll("*")];
  [svg, ...svg.querySelectorAll("*")].forEach((part, i) => {
    const style = getComputedStyle(part);
    for (const name of STYLES) copies[i].style.setProperty(name, style.getPropertyValue(name));
  });
  const box = { x: EDGE, y: EDGE, width: svg.clientWidth, height: svg.clientHeight };
  for (const [name, value] of Object.entries(box)) copy.setAttribute(name, value);
  copy.style.overflow = "visible";
  const whole = svg.cloneNode(false);
  ["width", "height"].forEach((name, i) => whole.setAttribute(name, size[i]));
  whole.removeAttribute("viewBox");
  whole.style.background = getComputedStyle(document.body).backgroundColor;
  whole.append(copy);
  const image = new Image();
  image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(new XMLSerializer().serializeToString(whole));
  await image.decode();
  const canvas = make("canvas");
  [canvas.width, canvas.height] = size.map(one => Math.round(one * scale));
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL("image/png");
}
addEventListener("DOMContentLoaded", () => {
  const bar = make("p", undefined, "savers"), name = document.body.dataset.page;
  const savers = { PNG: async () => save(`${name}.png`, await toPng()),
    JSON: () => save(`${name}.json`, "data:application/json;charset=utf-8," + encodeURIComponent(find("data").textContent)) };
  for (const [format, saver] of Object.entries(savers)) {
    const button = make("button", format);
    button.type = "button";
    button.addEventListener("click", saver);
    bar.append(button);
  }
  document.querySelector("main").append(bar);
});
