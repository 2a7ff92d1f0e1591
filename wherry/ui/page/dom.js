// Elements without markup from strings: what comes from the cluster is only ever the text of a node or the value of an attribute.

// Control characters, and those that change the direction of text, are invisible, or look like a space, could make a name or a
// command look like another: also letters without a picture (U+2800 is an empty Braille pattern, U+1D159 a note without a head).
export const HIDDEN = /(?![ \t\n])[\p{Cc}\p{Cf}\p{Cs}\p{Z}\p{Default_Ignorable_Code_Point}\u2800\u{1d159}]/gu;

/** Return a text with its invisible characters as \u{...}. */
export function plain(text) {
  return String(text ?? "").replace(HIDDEN, (each) => `\\u{${each.codePointAt(0).toString(16)}}`);
}

export function byId(id) {
  return document.getElementById(id);
}

/** Return an element with attributes (null and false are left out, functions listen) and children (elements or texts). */
export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") made.addEventListener(name, value);
    else made.setAttribute(name, value === true ? "" : plain(value));
  }
  made.append(
    ...children
      .flat(Infinity)
      .filter((each) => each !== null && each !== undefined)
      .map(node),
  );
  return made;
}

/** Return an element of a picture (SVG), with attributes and children as el() has them. */
export function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== null && value !== false) attribute(made, name, value);
  made.append(
    ...children
      .flat(Infinity)
      .filter((each) => each !== null && each !== undefined)
      .map(node),
  );
  return made;
}

function node(child) {
  return child instanceof Node ? child : document.createTextNode(plain(child));
}

/** Set the text of an element if it is another one. */
export function text(element, value) {
  const shown = plain(value);
  if (element.textContent !== shown) element.textContent = shown;
}

/** Set an attribute if its value is another one; null removes it. */
export function attribute(element, name, value) {
  if (value === null || value === false) {
    if (element.hasAttribute(name)) element.removeAttribute(name);
  } else if (element.getAttribute(name) !== plain(value)) {
    element.setAttribute(name, plain(value));
  }
}

/** Make the children of an element those of a list: elements stay for their key, so that focus and state stay too. */
export function keyed(parent, items, key, create, update) {
  const known = (parent.keyedChildren ??= new Map());
  const left = new Set(known.keys());
  let place = parent.firstChild;
  for (const item of items) {
    const id = key(item);
    left.delete(id);
    let child = known.get(id);
    if (!child) known.set(id, (child = create(item)));
    update(child, item);
    if (child === place) place = place.nextSibling;
    else parent.insertBefore(child, place);
  }
  for (const id of left) {
    known.get(id).remove();
    known.delete(id);
  }
}

const LATEST = 1000;

/** Return a function that plans `show` for the next frame, once. A tab that is not visible has no frames: there it runs a second later. */
export function inFrame(show) {
  let frame = 0;
  let timer = 0;
  const run = () => {
    cancelAnimationFrame(frame);
    clearTimeout(timer);
    timer = 0;
    show();
  };
  return () => {
    if (timer) return;
    timer = setTimeout(run, LATEST);
    frame = requestAnimationFrame(run);
  };
}

/** Return a button that copies a text. */
export function copyButton(value, label = "Copy") {
  const button = el("button", { type: "button", class: "copy" }, label);
  button.addEventListener("click", async () => {
    let done = "Copied";
    try {
      await navigator.clipboard.writeText(plain(value));
    } catch {
      done = "Select it and copy";
    }
    button.textContent = done;
    setTimeout(() => (button.textContent = label), 2000);
  });
  return button;
}

/** Return the time of day of a moment. */
export function clock(time) {
  const date = new Date(time);
  return Number.isNaN(date.getTime()) ? "" : date.toLocaleTimeString([], { hourCycle: "h23" });
}

/** Return a time span in words, such as 5m or 3d. */
export function age(milliseconds) {
  const seconds = Math.max(0, Math.round(milliseconds / 1000));
  if (seconds < 120) return `${seconds}s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86400)}d`;
}
