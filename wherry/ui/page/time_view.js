// The time slider: a former moment, what was decided just before it, and what is known of the cluster then.

import { getJson } from "./api.js";
import { attribute, clock, el, keyed, text } from "./dom.js";
import { shows } from "./drawer.js";

const RANGES = { "5 minutes": 300, "30 minutes": 1800, "6 hours": 21600, "3 days": 259200 };
const WINDOW = 60;
const STEP = 1000;
const PAUSE = 150;

export class TimeView {
  /** `moved` is called with the moment in milliseconds, or 0 for now; `context` returns the namespace and the history. */
  constructor(place, { moved, context }) {
    Object.assign(this, { place, moved, context, at: 0, timer: 0, number: 0 });
    this.range = el(
      "select",
      { "aria-label": "Length of the time line" },
      Object.entries(RANGES).map(([name, seconds]) => el("option", { value: String(seconds) }, name)),
    );
    this.slider = el("input", { type: "range", step: String(STEP), "aria-label": "Moment" });
    this.word = el("output", { class: "moment" });
    this.now = el("button", { type: "button", click: () => this.move(0) }, "Now");
    this.known = el("p", { class: "hint", role: "status" });
    this.list = el("ol", { class: "moments", "aria-label": "Decisions" });
    this.range.addEventListener("change", () => this.show(this.at));
    this.slider.addEventListener("input", () =>
      this.move(Number(this.slider.value) >= Number(this.slider.max) ? 0 : Number(this.slider.value)),
    );
    place.append(el("div", { class: "tools" }, this.range, this.slider, this.word, this.now), this.known, this.list);
    place.parentElement.addEventListener("toggle", () => place.parentElement.open && this.read());
  }

  move(at) {
    this.moved(at);
    this.show(at);
  }

  /** Show a moment, 0 for now. */
  show(at) {
    const now = Date.now();
    const seconds = Number(this.range.value);
    const changed = at !== this.at;
    this.at = at;
    attribute(this.slider, "min", Math.floor((now - seconds * 1000) / STEP) * STEP);
    attribute(this.slider, "max", Math.ceil(now / STEP) * STEP);
    const value = String(Math.min(at || Number(this.slider.max), Number(this.slider.max)));
    if (this.slider.value !== value) this.slider.value = value;
    const said = at ? `as it was at ${dated(at)}` : "now";
    attribute(this.slider, "aria-valuetext", said);
    text(this.word, said);
    this.now.disabled = !at;
    if (at && !this.place.parentElement.open) this.place.parentElement.open = true;
    if (changed && this.place.parentElement.open) this.plan();
  }

  plan() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.read(), PAUSE);
  }

  async read() {
    const { namespace, history } = this.context();
    const number = (this.number += 1);
    const until = (this.at || Date.now()) / 1000;
    let found;
    try {
      found = await getJson("/decisions", { namespace, since: (until - WINDOW).toFixed(3), until: until.toFixed(3) });
    } catch (error) {
      found = { why: error.message };
    }
    if (number !== this.number) return;
    const entries = (found.entries || []).reverse().map((each, index) => ({ ...each, id: `${each.time} ${index} ${each.name}` }));
    const complete = (found.completeSince || 0) * 1000;
    const known = [
      found.why || (until * 1000 < complete ? `The journal is complete since ${dated(complete)}: decisions before may be missing.` : ""),
      found.why ? "" : `${entries.length || "No"} decisions in the ${WINDOW} s before${found.more ? ", and more" : ""}.`,
      history.from ? `States of objects: this page has recorded them since ${dated(history.from)}, as long as it stays open.` : "",
      "Not recorded: logs, events and details of former moments, what policies stopped then, decisions of nodes' agents.",
    ];
    text(this.known, known.filter(Boolean).join(" "));
    keyed(
      this.list,
      entries,
      (each) => each.id,
      decision,
      () => {},
    );
  }
}

function decision({ time, actor, text: said, kind = "", resource = "", namespace = "", name }) {
  const what = `${kind || resource} ${namespace ? `${namespace}/` : ""}${name}`;
  const key = `${kind}/${namespace}/${name}`;
  const named = shows(kind) ? el("button", { type: "button", class: "link", "data-open": key }, what) : what;
  return el("li", {}, el("time", { datetime: new Date(time * 1000).toISOString() }, clock(time * 1000)), ` ${actor}: `, named, ` ${said}`);
}

function dated(time) {
  const date = new Date(time);
  return date.toDateString() === new Date().toDateString() ? clock(time) : `${date.toLocaleDateString()} ${clock(time)}`;
}
