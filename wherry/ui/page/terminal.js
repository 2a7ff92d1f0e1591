// A terminal in a container (exec), with the rights of the visitor. It is the only part of the page that changes something.

import { socket } from "./api.js";
import { el, inFrame, text } from "./dom.js";
import { Screen } from "./screen.js";

const [INPUT, OUTPUT, ERRORS, STATUS, RESIZE, SEEN] = [0, 1, 2, 3, 4, 254];
const REPORTED = 64 << 10;
const COLUMNS = 80;
const ROWS = 24;
const MOST_INPUT = 32 << 10;
const KEYS = {
  Enter: "\r",
  Backspace: "\u007f",
  Tab: "\t",
  Escape: "\u001b",
  Delete: "\u001b[3~",
  Home: "\u001b[H",
  End: "\u001b[F",
  PageUp: "\u001b[5~",
  PageDown: "\u001b[6~",
  ArrowUp: "\u001b[A",
  ArrowDown: "\u001b[B",
  ArrowRight: "\u001b[C",
  ArrowLeft: "\u001b[D",
};

/** Return an element with a terminal for a pod, which has a method `close`. */
export function terminal(pod) {
  if (!pod.containers) return el("p", {}, "reading…");
  const running = pod.containers.filter((each) => each.state === "running");
  const select = el(
    "select",
    { "aria-label": "Container" },
    running.map((each) => el("option", { value: each.name }, each.name)),
  );
  const main = running.find((each) => !each.init);
  if (main) select.value = main.name;
  const command = el("input", { "aria-label": "Command", value: "sh", spellcheck: "false", autocomplete: "off", class: "command" });
  const start = el("button", { type: "submit" }, "Start");
  const state = el(
    "p",
    { role: "status", class: "hint" },
    running.length ? "A command in the container runs with your own rights, and may change things." : "No container of this pod runs.",
  );
  const output = el("pre", { tabindex: "0", role: "log", "aria-label": "Terminal", class: "terminal" });
  const line = el("input", {
    "aria-label": "Line to send",
    placeholder: "a line to send, or type into the terminal above",
    autocomplete: "off",
    autocapitalize: "off",
    spellcheck: "false",
  });
  const form = el("form", { class: "tools" }, select, command, start);
  const lineForm = el("form", {}, line);
  const place = el("div", {}, form, output, lineForm, state);
  let session = null;
  start.disabled = !running.length;
  lineForm.hidden = true;
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    session?.close();
    try {
      session = new Session(pod, select.value, command.value.split(/\s+/).filter(Boolean), output, (said, alive) => {
        text(state, said);
        lineForm.hidden = !alive;
      });
    } catch (error) {
      return text(state, error.message);
    }
    output.focus();
  });
  lineForm.addEventListener("submit", (event) => {
    event.preventDefault();
    session?.send(`${line.value}\r`);
    line.value = "";
  });
  output.addEventListener("keydown", (event) => session?.key(event));
  output.addEventListener("paste", (event) => {
    event.preventDefault();
    session?.send(event.clipboardData.getData("text"));
  });
  place.close = () => session?.close();
  return place;
}

class Session {
  constructor({ namespace, name }, container, command, output, said) {
    this.output = output;
    this.said = said;
    this.screen = new Screen(COLUMNS, ROWS);
    this.decoder = new TextDecoder();
    this.encoder = new TextEncoder();
    this.ended = "";
    this.seen = 0;
    this.plan = inFrame(() => this.show());
    const query = new URLSearchParams({ namespace, name, container });
    for (const word of command) query.append("command", word);
    this.socket = socket("/exec", query);
    this.socket.binaryType = "arraybuffer";
    this.socket.addEventListener("open", () => {
      this.said("Keys go to the program, Shift-Tab leaves the terminal.", true);
      this.message(RESIZE, JSON.stringify({ Width: COLUMNS, Height: ROWS }));
    });
    this.socket.addEventListener("message", (event) => this.take(new Uint8Array(event.data)));
    this.socket.addEventListener("close", () => this.said(this.ended || "The connection ended.", false));
    this.show();
  }

  close() {
    this.socket.close();
  }

  take(bytes) {
    const [channel, rest] = [bytes[0], bytes.subarray(1)];
    if (channel === STATUS) this.ended = status(new TextDecoder().decode(rest));
    if (channel === OUTPUT || channel === ERRORS) this.screen.write(this.decoder.decode(rest, { stream: true }));
    this.seen += bytes.length;
    if (this.seen > REPORTED) {
      this.message(SEEN, String(this.seen));
      this.seen = 0;
    }
    this.plan();
  }

  show() {
    const [before, under, after] = this.screen.parts();
    this.output.replaceChildren(el("span", {}, before), el("span", { class: "cursor" }, under), el("span", {}, after));
    this.output.scrollTop = this.output.scrollHeight;
  }

  message(channel, said) {
    if (this.socket.readyState !== WebSocket.OPEN) return;
    const bytes = this.encoder.encode(said);
    for (let from = 0; from === 0 || from < bytes.length; from += MOST_INPUT)
      this.socket.send(new Uint8Array([channel, ...bytes.subarray(from, from + MOST_INPUT)]));
  }

  send(said) {
    this.message(INPUT, said);
  }

  key(event) {
    if (event.metaKey || (event.shiftKey && event.key === "Tab")) return;
    const { key } = event;
    let said = KEYS[key];
    if (event.ctrlKey && key.length === 1) {
      if (event.shiftKey) return; // copy and paste of the browser
      const code = key.toUpperCase().charCodeAt(0);
      said = code >= 64 && code < 96 ? String.fromCharCode(code - 64) : undefined;
    } else if (key.length === 1) said = event.altKey ? `\u001b${key}` : key;
    if (said === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    this.send(said);
  }
}

function status(said) {
  try {
    const found = JSON.parse(said);
    return found.status === "Success" ? "The command ended." : String(found.message || "The command failed.");
  } catch {
    return "The command ended.";
  }
}
