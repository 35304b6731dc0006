// Download what is shown, as a picture or as numbers.
import { button, draw, make, row } from "./ui.js";

export function save(name, address) {
  make("a", { href: address, download: name }).click();
}
/** Buttons to download a picture and the numbers; `picture` returns the URL of a picture. */
export function savers(name, numbers, picture) {
  const status = make("span", { role: "status", className: "soft" });
  const asPicture = button("PNG", async () => {
    try {
      save(`${name}.png`, await picture());
      status.textContent = "";
    } catch (error) {
      status.textContent = `could not create a picture: ${error.message}`;
    }
  });
  return row(asPicture, button("JSON", () => saveJson(name, numbers())), status);
}
export function saveJson(name, value) {
  const address = URL.createObjectURL(new Blob([JSON.stringify(value, null, 1)], { type: "application/json" }));
  save(`${name}.json`, address);
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

const MARGIN = 12, MAX_TITLE = 400; // pixels around a picture; maximum length of a title

/** Render a part of the page, with a title above it, as a PNG. */
export async function pictureOf(node, title = "") {
  const { width } = node.getBoundingClientRect(), style = getComputedStyle(document.body);
  const sheets = await Promise.all([...document.styleSheets].filter((sheet) => sheet.href).map(async (sheet) => (await fetch(sheet.href)).text()));
  const heading = title.trim() ? [make("p", { className: "asked" }, title.length > MAX_TITLE ? `${title.slice(0, MAX_TITLE)}…` : title)] : [];
  const whole = make("div", { className: "picture" }, ...heading, node.cloneNode(true));
  whole.style.cssText = `background: ${style.backgroundColor}; color: ${style.color}; font: ${style.font}; padding: ${MARGIN}px; width: ${width}px; box-sizing: content-box; display: flow-root; min-height: 100%`;
  for (const name of ["--ground", "--raised", "--ink", "--faint", "--line", "--accent", "--warm", "--bad"])
    whole.style.setProperty(name, getComputedStyle(document.documentElement).getPropertyValue(name));
  const size = [width + 2 * MARGIN, heightOf(whole)].map(Math.ceil);
  whole.prepend(make("style", {}, sheets.join("\n")));
  const markup = new XMLSerializer().serializeToString(whole);
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="${size[0]}" height="${size[1]}"><foreignObject width="100%" height="100%">${markup}</foreignObject></svg>`;
  return rasterised(svg, size);
}
/** The height of an element that is not in the page: it is added, invisible, to measure it. */
function heightOf(whole) {
  const hidden = make("div", { ariaHidden: "true" }, whole);
  hidden.style.cssText = "position: absolute; visibility: hidden; inset: 0 auto auto 0; height: auto";
  document.body.append(hidden);
  const { height } = whole.getBoundingClientRect();
  hidden.remove();
  return height;
}
/** Render an SVG drawing with the page's style, with a title above it, as a PNG. */
export async function pictureOfSvg(svg, title = "") {
  const copy = svg.cloneNode(true), { width, height } = svg.getBoundingClientRect(), style = getComputedStyle(document.body);
  const own = [...svg.querySelectorAll("*")], copied = [...copy.querySelectorAll("*")];
  own.forEach((part, index) => {
    const style = getComputedStyle(part);
    for (const name of ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font"]) copied[index].style.setProperty(name, style.getPropertyValue(name));
  });
  const letters = Math.floor(width / 7.5), above = title ? 28 : 0;
  for (const [name, value] of Object.entries({ x: MARGIN, y: MARGIN + above, width, height })) copy.setAttribute(name, value);
  const size = [width + 2 * MARGIN, height + above + 2 * MARGIN].map(Math.ceil);
  const heading = draw("text", { x: MARGIN, y: MARGIN + 14, fill: style.color, style: `font: 14px ${style.fontFamily.replaceAll('"', "'")}` });
  heading.textContent = title.length > letters ? `${title.slice(0, letters - 1)}…` : title;
  return rasterised(new XMLSerializer().serializeToString(draw("svg", { width: size[0], height: size[1] }, heading, copy)), size);
}
/** An SVG text as the URL of a PNG. */
async function rasterised(svg, [width, height]) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  await image.decode();
  const canvas = make("canvas", { width: 2 * width, height: 2 * height }), context = canvas.getContext("2d");
  context.fillStyle = getComputedStyle(document.body).backgroundColor;
  context.fillRect(0, 0, canvas.width, canvas.height); // an opaque background, up to the edge
  context.scale(2, 2);
  context.drawImage(image, 0, 0);
  return canvas.toDataURL("image/png");
}
