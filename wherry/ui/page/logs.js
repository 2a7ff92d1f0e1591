// The log of a container, followed, with a limit of what is kept.

import { get, texts } from "./api.js";
import { el, inFrame, plain } from "./dom.js";

const TAIL = 500;
const MOST_LINES = 5000;
const MOST_SIZE = 2e6; // characters
const LONGEST_LINE = 16 << 10;
const PART_LINES = 500;
const PART_SIZE = 64 << 10;
const COLOURS = /\u001b\[[0-9;]*[A-Za-z]/g;

/** Return an element with the logs of a pod, which has a method `close`. */
export function logs(pod) {
  const select = el(
    "select",
    { "aria-label": "Container" },
    pod.containers.map((each) => el("option", { value: each.name }, each.name)),
  );
  const first = pod.containers.find((each) => !each.init) || pod.containers[0];
  if (first) select.value = first.name;
  const follow = el("input", { type: "checkbox", checked: true });
  const previous = el("input", { type: "checkbox" });
  const again = el("button", { type: "button" }, "Read again");
  const state = el("p", { role: "status", class: "hint" });
  const output = el("pre", { tabindex: "0", role: "log", "aria-live": "off", "aria-label": "Log" });
  const tools = el("p", { class: "tools" }, select, el("label", {}, follow, " follow"), el("label", {}, previous, " previous"), again);
  const place = el("div", { class: "logs" }, tools, output, state);
  let reading = new AbortController();
  const start = () => {
    reading.abort();
    reading = new AbortController();
    const query = { container: select.value, tailLines: String(TAIL) };
    if (previous.checked) query.previous = "true";
    else if (follow.checked) query.follow = "true";
    read(pod, query, output, state, reading.signal);
  };
  for (const each of [select, follow, previous]) each.addEventListener("change", start);
  again.addEventListener("click", start);
  place.close = () => reading.abort();
  if (pod.containers.length) start();
  return place;
}

async function read(pod, query, output, state, signal) {
  const lines = new Lines(output);
  // The server of a log that is followed answers with its first line, which may never come.
  state.textContent = query.follow ? "following" : "reading…";
  try {
    const answer = await get(
      `/api/v1/namespaces/${encodeURIComponent(pod.namespace)}/pods/${encodeURIComponent(pod.name)}/log`,
      query,
      signal,
    );
    for await (const text of texts(answer)) lines.add(text);
    state.textContent = query.follow ? "the log ended" : "the log until now";
  } catch (error) {
    if (!signal.aborted) state.textContent = plain(error.message);
  }
}

/** The end of a log: text is added once in a frame, and the oldest parts are removed, by lines and by size. */
export class Lines {
  constructor(output) {
    this.output = output;
    this.plan = inFrame(() => this.show());
    this.waiting = [];
    this.size = 0;
    this.clear();
  }

  clear() {
    this.parts = [];
    this.column = 0;
    this.output.replaceChildren();
  }

  /** Add text; of what waits for a frame only the end is kept. */
  add(text) {
    this.waiting.push(text);
    this.size += text.length;
    while (this.size > MOST_SIZE && this.waiting.length > 1) {
      this.size -= this.waiting.shift().length;
      this.cut = true;
    }
    this.plan();
  }

  show() {
    const { output } = this;
    const atEnd = output.scrollHeight - output.scrollTop - output.clientHeight < 40;
    const lines = this.waiting.join("").replace(COLOURS, "").slice(-MOST_SIZE).split("\n");
    if (this.cut || lines.length > MOST_LINES) this.clear();
    this.waiting = [];
    this.size = 0;
    this.cut = false;
    const last = lines.slice(-MOST_LINES);
    last.forEach((line, index) => this.put(line, index < last.length - 1));
    for (const each of this.parts) each.flush();
    this.trim();
    if (atEnd) output.scrollTop = output.scrollHeight;
  }

  // Put what has come of a line; a long one is broken, so that parts can end.
  put(line, ended) {
    let left = line;
    while (this.column + left.length > LONGEST_LINE) {
      const here = LONGEST_LINE - this.column;
      this.write(`${left.slice(0, here)}…\n`);
      left = left.slice(here);
    }
    this.write(ended ? `${left}\n` : left);
  }

  write(text) {
    if (!text) return;
    if (this.column === 0 && !this.parts.at(-1)?.open) this.parts.push(new Part(this.output));
    const ended = text.endsWith("\n");
    this.parts.at(-1).add(text, ended);
    this.column = ended ? 0 : this.column + text.length;
  }

  trim() {
    const sum = (name) => this.parts.reduce((total, each) => total + each[name], 0);
    for (let lines = sum("lines"), size = sum("size"); (lines > MOST_LINES || size > MOST_SIZE) && this.parts.length > 1;) {
      const first = this.parts.shift();
      lines -= first.lines;
      size -= first.size;
      first.element.remove();
    }
  }
}

// Some lines, which the browser lays out apart from the others.
class Part {
  constructor(output) {
    this.element = el("div");
    this.content = this.element.appendChild(document.createTextNode(""));
    this.added = "";
    this.lines = 0;
    this.size = 0;
    output.append(this.element);
  }

  get open() {
    return this.size < PART_SIZE && this.lines < PART_LINES;
  }

  add(text, ended) {
    this.added += text;
    this.size += text.length;
    if (ended) this.lines += 1;
  }

  flush() {
    if (this.added) this.content.appendData(plain(this.added));
    this.added = "";
  }
}
