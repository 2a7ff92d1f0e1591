// The inside view: Wherry's parts with the data that flows between them, from the metrics of its daemons.

import { get, getJson } from "./api.js";
import { attribute, el, keyed, svg, text } from "./dom.js";
import { BOXES, FLOWS, HEIGHT, WIDTH } from "./inside_parts.js";
import { TABLES } from "./inside_tables.js";
import { box, picture, relabel } from "./diagram.js";
import { Sample } from "./samples.js";
import { whyOver } from "./session.js";

const PERIOD = 3000;

export class Inside {
  /** `nodes` returns the names of nodes, `parts` are files by part. */
  constructor(place, nodes) {
    Object.assign(this, { place, nodes, former: {}, timer: 0, shown: false, reading: false });
  }

  show(shown, parts) {
    if (shown === this.shown) return;
    this.shown = shown;
    this.place.hidden = !shown;
    clearTimeout(this.timer);
    if (shown && !this.boxes) this.build(parts);
    if (shown) this.read();
  }

  build(parts) {
    this.boxes = new Map();
    this.labels = new Map();
    const arrow = svg(
      "marker",
      { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto-start-reverse" },
      svg("path", { d: "M0 0 8 4 0 8z", class: "head" }),
    );
    const made = [svg("defs", {}, arrow)];
    for (const { name, points, at, both, anchor } of FLOWS) {
      made.push(
        svg("polyline", {
          points: points.join(" "),
          class: "flow",
          "marker-end": "url(#arrow)",
          "marker-start": both ? "url(#arrow)" : null,
        }),
      );
      const label = svg("text", { x: at[0], y: at[1], class: "number", "text-anchor": anchor || "middle" });
      this.labels.set(name, label);
      made.push(label);
    }
    for (const each of BOXES) {
      const drawn = box({
        ...each,
        part: each.part || "",
        lines: [each.title, "", ""],
        title: each.part ? `${each.title}: ${parts[each.part]}` : each.title,
      });
      this.boxes.set(each.name, drawn);
      made.push(drawn);
    }
    this.select = el("select", { "aria-label": "Node", change: () => this.read() });
    this.state = el("p", { role: "status", class: "hint" }, "reading…");
    this.notes = el("ul", { class: "unknown" });
    this.tables = el("div", { class: "tables" });
    this.source = el("section", { id: "source", "aria-labelledby": "source-title", hidden: true });
    const scroll = el(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": "Picture of Wherry's inside" },
      picture("Wherry's parts and what flows between them", WIDTH, HEIGHT, made),
    );
    const chosen = (event) => this.open(event.target.closest("[data-part]"), parts);
    scroll.addEventListener("click", chosen);
    scroll.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      chosen(event);
    });
    const tools = el(
      "p",
      { class: "tools" },
      el("label", {}, "Agent and proxy of node ", this.select),
      el("span", { class: "hint" }, "a click on a part shows its file"),
    );
    this.place.append(tools, this.state, scroll, this.notes, this.source, this.tables);
  }

  async read() {
    clearTimeout(this.timer);
    if (!this.shown || this.reading) return;
    if (whyOver()) return text(this.state, whyOver());
    this.reading = true;
    try {
      this.options();
      if (!document.hidden) this.take(await getJson("/inside", { node: this.select.value }), this.select.value);
    } catch (error) {
      text(this.state, error.message);
    }
    this.reading = false;
    if (this.shown && !whyOver()) this.timer = setTimeout(() => this.read(), PERIOD);
  }

  options() {
    const names = ["", ...this.nodes()];
    keyed(
      this.select,
      names,
      (each) => each,
      (name) => el("option", { value: name }, name || "none"),
      () => {},
    );
    if (!this.select.value && names.length > 1 && !this.chosen) this.select.value = names[1];
    this.chosen ||= names.length > 1;
  }

  take(found, node) {
    const samples = {};
    const notes = [];
    for (const part of ["server", "agent", "proxy"]) {
      const former = this.former[part]?.node === node || part === "server" ? this.former[part] : undefined;
      samples[part] = new Sample(found[part], former?.sample);
      this.former[part] = { node, sample: samples[part] };
      if (found[part]?.why) notes.push(`${NAMES[part]}: ${found[part].why}${part === "proxy" ? PROXY_HINT : ""}`);
    }
    if (found.server && !found.server.why) notes.push(...missing(samples.server));
    for (const { name, title, width, lines } of BOXES) {
      relabel(this.boxes.get(name), [title, ...(lines ? lines(samples) : [])], Math.floor((width - 16) / 6.3));
    }
    for (const { name, words } of FLOWS) text(this.labels.get(name), words(samples));
    keyed(
      this.notes,
      notes,
      (each) => each,
      () => el("li"),
      text,
    );
    keyed(
      this.tables,
      TABLES,
      (each) => each.title,
      table,
      (element, each) => fill(element, each, samples),
    );
    text(
      this.state,
      samples.server.seconds ? `rates of the last ${samples.server.seconds.toFixed(0)} s` : "rates follow with the next reading",
    );
  }

  async open(drawn, parts) {
    if (!drawn) return;
    const { part } = drawn.dataset;
    let shown;
    try {
      shown = await (await get("/source", { part })).text();
    } catch (error) {
      shown = error.message;
    }
    const title = el("h3", { id: "source-title", tabindex: "-1" }, parts[part]);
    const close = el("button", { type: "button" }, "Close the file");
    close.addEventListener("click", () => {
      this.source.hidden = true;
      drawn.focus();
    });
    this.source.replaceChildren(title, close, el("pre", { tabindex: "0", "aria-label": `Text of ${parts[part]}` }, shown));
    this.source.hidden = false;
    title.focus();
  }
}

const NAMES = { server: "API server", agent: "Agent", proxy: "Proxy" };
const PROXY_HINT = ". By default a proxy serves its metrics on its node's loopback address only (127.0.0.1:10249)";

const FOREIGN = "This control plane is not Wherry's: numbers are those that upstream's API server has, files are Wherry's.";
const NO_QUEUES =
  "Queues and scheduler: the API server does not have their metrics; " +
  "upstream's controllers and scheduler serve them on ports of their own.";
const NO_COMMITS = "Commits and fsync: this store is etcd or memory, and does not report them here.";

// Return which numbers an API server does not have.
function missing(server) {
  return [
    server.own ? "" : FOREIGN,
    server.has("workqueue_depth") ? "" : NO_QUEUES,
    server.own && !server.has("wherry_store_commit_duration_seconds_count") ? NO_COMMITS : "",
  ].filter(Boolean);
}

function table({ title, columns }) {
  const head = el(
    "tr",
    {},
    columns.map((each) => el("th", { scope: "col" }, each)),
  );
  const body = el("tbody");
  const element = el(
    "section",
    { "aria-label": title },
    el("h3", {}, title),
    el(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": `Table: ${title}` },
      el("table", {}, el("thead", {}, head), body),
    ),
  );
  element.body = body;
  return element;
}

function fill(element, { rows, columns }, samples) {
  const found = rows(samples);
  attribute(element, "hidden", found.length ? null : "");
  keyed(
    element.body,
    found,
    (row) => row[0],
    () =>
      el(
        "tr",
        {},
        columns.map((_, index) => (index ? el("td") : el("th", { scope: "row" }))),
      ),
    (tr, row) => {
      row.forEach((value, index) => text(tr.children[index], value));
    },
  );
}
