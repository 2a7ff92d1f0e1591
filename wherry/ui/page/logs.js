// The log of a container, followed, with a limit of what is kept.

import { get, texts } from "./api.js";
import { el, plain } from "./dom.js";

const TAIL = 500;
const MOST_LINES = 5000;
const COLOURS = /\u001b\[[0-9;]*[A-Za-z]/g;

/** Return an element with the logs of a pod, which has a method `close`. */
export function logs(pod) {
  const select = el("select", { "aria-label": "Container" }, pod.containers.map((each) => el("option", { value: each.name }, each.name)));
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
    const answer = await get(`/api/v1/namespaces/${encodeURIComponent(pod.namespace)}/pods/${encodeURIComponent(pod.name)}/log`, query, signal);
    for await (const text of texts(answer)) lines.add(text);
    state.textContent = query.follow ? "the log ended" : "the log until now";
  } catch (error) {
    if (!signal.aborted) state.textContent = plain(error.message);
  }
}

// Text is added once in a frame, and the oldest lines are removed.
class Lines {
  constructor(output) {
    this.output = output;
    this.waiting = "";
    this.count = 0;
    this.planned = false;
    output.replaceChildren();
  }

  add(text) {
    this.waiting += text;
    if (this.planned) return;
    this.planned = true;
    requestAnimationFrame(() => this.show());
  }

  show() {
    const { output } = this;
    this.planned = false;
    const atEnd = output.scrollHeight - output.scrollTop - output.clientHeight < 40;
    const lines = this.waiting.replace(COLOURS, "").split("\n");
    // A whole part is removed at a time, so none is larger than what is kept.
    const text = lines.slice(-MOST_LINES).join("\n");
    const part = el("span", {}, text);
    part.lines = Math.min(lines.length, MOST_LINES) - 1;
    this.count += part.lines;
    this.waiting = "";
    output.append(part);
    while (this.count > MOST_LINES && output.firstChild !== part) {
      this.count -= output.firstChild.lines;
      output.firstChild.remove();
    }
    if (atEnd) output.scrollTop = output.scrollHeight;
  }
}
