// What is seen as a picture and as numbers.
import { button, make, row } from "./kit.js";

export function save(name, address) {
  make("a", { href: address, download: name }).click();
}
/** Buttons for a picture and for numbers; `picture` answers an address of one. */
export function savers(name, numbers, picture) {
  const said = make("span", { role: "status", className: "soft" });
  const asPicture = button("PNG", async () => {
    try {
      save(`${name}.png`, await picture());
      said.textContent = "";
    } catch (error) {
      said.textContent = `no picture: ${error.message}`;
    }
  });
  const asNumbers = button("JSON", () => {
    const address = URL.createObjectURL(new Blob([JSON.stringify(numbers(), null, 1)], { type: "application/json" }));
    save(`${name}.json`, address);
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  });
  return row(asPicture, asNumbers, said);
}

/** A part of the page as a picture: its own markup and style, drawn by the browser. */
export async function pictureOf(node) {
  const { width, height } = node.getBoundingClientRect(), style = getComputedStyle(document.body);
  const sheets = await Promise.all([...document.styleSheets].filter((sheet) => sheet.href).map(async (sheet) => (await fetch(sheet.href)).text()));
  const copy = node.cloneNode(true);
  const whole = make("div", { className: "picture" }, make("style", {}, sheets.join("\n")), copy);
  whole.style.cssText = `background: ${style.backgroundColor}; color: ${style.color}; font: ${style.font}; padding: 12px; width: ${width}px`;
  for (const name of ["--ground", "--raised", "--ink", "--faint", "--line", "--accent", "--warm"])
    whole.style.setProperty(name, getComputedStyle(document.documentElement).getPropertyValue(name));
  const markup = new XMLSerializer().serializeToString(whole);
  const size = [Math.ceil(width) + 24, Math.ceil(height) + 24];
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="${size[0]}" height="${size[1]}"><foreignObject width="100%" height="100%">${markup}</foreignObject></svg>`;
  return painted(`data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`, size);
}
/** A drawing as a picture; its style is what the page gives it. */
export async function pictureOfSvg(svg) {
  const copy = svg.cloneNode(true), { width, height } = svg.getBoundingClientRect();
  const own = [...svg.querySelectorAll("*")], copied = [...copy.querySelectorAll("*")];
  own.forEach((part, place) => {
    const style = getComputedStyle(part);
    for (const name of ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font"]) copied[place].style.setProperty(name, style.getPropertyValue(name));
  });
  copy.style.background = getComputedStyle(document.body).backgroundColor;
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  return painted(`data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(copy))}`, [width, height]);
}
async function painted(address, [width, height]) {
  const image = new Image();
  image.src = address;
  await image.decode();
  const canvas = make("canvas", { width: 2 * width, height: 2 * height }), pen = canvas.getContext("2d");
  pen.scale(2, 2);
  pen.drawImage(image, 0, 0);
  return canvas.toDataURL("image/png");
}
