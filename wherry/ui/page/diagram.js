// Pictures of boxes and the lines between them (SVG).

import { svg } from "./dom.js";

const PADDING = 8;

/** Return a text that fits into so many characters. */
export function short(text, most) {
  const characters = [...String(text)];
  return characters.length > most ? `${characters.slice(0, most - 1).join("")}…` : characters.join("");
}

/** Return a picture with a name, of a size in its own units; wider than its place, it is scrolled. */
export function picture(name, width, height, ...children) {
  const made = svg("svg", { class: "picture", role: "group", "aria-label": name, viewBox: `0 0 ${width} ${height}` }, children);
  made.style.minWidth = `${Math.min(width, 640)}px`;
  return made;
}

/** Return a box with lines of text; `open` is the key of the object that a click shows, `title` what the lines cut. */
export function box({ x, y, width, height, lines, kind = "", open = "", part = "", title = "" }) {
  const most = Math.floor((width - 2 * PADDING) / 6.6);
  const texts = lines.map((line, index) =>
    svg("text", { x: x + PADDING, y: y + 17 + index * 15, class: index ? "second" : "first" }, short(line, most)),
  );
  const shape = svg("rect", { x, y, width, height, rx: 5 });
  const inside = [svg("title", {}, title || lines.join(", ")), shape, ...texts];
  if (open) return svg("a", { class: `box ${kind}`, href: `?show=${encodeURIComponent(open)}`, "data-open": open }, inside);
  if (part) return svg("g", { class: `box ${kind}`, role: "button", tabindex: "0", "data-part": part }, inside);
  return svg("g", { class: `box ${kind}` }, inside);
}

/** Return a line from the right side of a place to the left side of another one. */
export function line(from, to, kind, title = "") {
  const [x1, y1, x2, y2] = [from.x + from.width, from.y + from.height / 2, to.x, to.y + to.height / 2];
  const middle = (x1 + x2) / 2;
  const path = svg("path", { class: `line ${kind}`, d: `M${x1} ${y1} C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}` });
  if (title) path.append(svg("title", {}, title));
  return path;
}

/** Set the lines of a box that was made with box(). */
export function relabel(made, lines, most) {
  [...made.querySelectorAll("text")].forEach((each, index) => {
    const shown = short(lines[index] ?? "", most);
    if (each.textContent !== shown) each.textContent = shown;
  });
}
