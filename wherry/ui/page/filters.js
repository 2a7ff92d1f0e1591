// Filters and the open object, which are in the URL: a link to the page shows the same.

const NAMES = ["namespace", "labels", "text", "show", "view", "at"];

/** Return the filters of the URL. */
export function read() {
  const query = new URLSearchParams(location.search);
  return Object.fromEntries(NAMES.map((name) => [name, (query.get(name) || "").slice(0, 2000)]));
}

/** Put filters into the URL; `push` makes it a step of the browser's history. */
export function write(filters, push) {
  const query = new URLSearchParams(NAMES.filter((name) => filters[name]).map((name) => [name, filters[name]]));
  const url = location.pathname + (query.size ? `?${query}` : "");
  if (url === location.pathname + location.search) return;
  history[push ? "pushState" : "replaceState"](null, "", url);
}

/** Return the former moment that is shown, in milliseconds; 0 for now. */
export function momentOf({ at }) {
  return /^\d{1,15}$/.test(at) ? Number(at) : 0;
}

/** Return whether an object contains all words of a text. */
export function matches(object, words) {
  return words.every((word) => object.text.includes(word));
}

export function wordsOf(text) {
  return text.toLowerCase().split(/\s+/).filter(Boolean);
}
