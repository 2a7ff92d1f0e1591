// The details of one object, in tabs: story, rollout, traffic, events, logs, terminal, containers, YAML.

import { getJson } from "./api.js";
import { age, clock, copyButton, el, keyed, text } from "./dom.js";
import { following } from "./following.js";
import { Collection } from "./live.js";
import { logs } from "./logs.js";
import { cut } from "./pods.js";
import { rollout } from "./rollout.js";
import { story } from "./story.js";
import { terminal } from "./terminal.js";
import { traffic } from "./traffic.js";
import { yaml } from "./yaml.js";

const PLURALS = {
  Pod: "/api/v1|pods",
  Node: "/api/v1|nodes",
  Deployment: "/apis/apps/v1|deployments",
  StatefulSet: "/apis/apps/v1|statefulsets",
  DaemonSet: "/apis/apps/v1|daemonsets",
  Job: "/apis/batch/v1|jobs",
  Service: "/api/v1|services",
};
const TABS = {
  Pod: ["Story", "Events", "Logs", "Terminal", "Containers", "YAML"],
  Deployment: ["Story", "Rollout", "Events", "YAML"],
  Service: ["Story", "Traffic", "Events", "YAML"],
};
const MOST_EVENTS = 3000;
const MOST_SHOWN = 500;
const OTHER_TABS = ["Story", "Events", "YAML"];

/** Return whether the page shows objects of a kind. */
export function shows(kind) {
  return Object.hasOwn(PLURALS, kind);
}

function pathOf({ kind, namespace, name }) {
  const [root, plural] = PLURALS[kind].split("|");
  const inside = namespace ? `/namespaces/${encodeURIComponent(namespace)}` : "";
  return `${root}${inside}/${plural}/${encodeURIComponent(name)}`;
}

export class Drawer {
  constructor(element, { closed }) {
    this.element = element;
    this.closed = closed;
    this.shown = null;
    this.key = "";
    element.addEventListener("keydown", (event) => this.arrows(event));
  }

  /** Show an object: what the page stores of it, or only its kind, namespace and name. */
  open(key, object) {
    if (key === this.key) return;
    if (!this.key) this.opener = document.activeElement;
    this.leave();
    this.key = key;
    this.shown = object;
    this.state = el("p", { class: "state" });
    const close = el("button", { type: "button", class: "close", "aria-label": "Close", click: () => this.closed() }, "×");
    this.title = el("h2", { id: "drawer-title", tabindex: "-1" }, `${object.kind} ${object.name}`);
    this.panel = el("div", { role: "tabpanel", id: "panel", tabindex: "0" });
    this.tabs = (TABS[object.kind] || OTHER_TABS).map((name) =>
      el("button", { type: "button", role: "tab", id: `tab-${name}`, "aria-controls": "panel", click: () => this.select(name) }, name),
    );
    const tablist = el("div", { role: "tablist", "aria-label": "Details" }, this.tabs);
    const where = object.namespace ? el("p", { class: "hint" }, `namespace ${object.namespace}`) : null;
    this.element.replaceChildren(...[close, this.title, where, this.state, tablist, this.panel].filter(Boolean));
    this.element.hidden = false;
    this.select("Story");
    this.title.focus();
  }

  close() {
    if (!this.key) return;
    this.leave();
    this.key = "";
    this.shown = null;
    this.element.hidden = true;
    this.element.replaceChildren();
    if (this.opener?.isConnected) this.opener.focus();
  }

  leave() {
    this.content?.close?.();
    this.content = null;
  }

  select(name) {
    this.leave();
    this.tab = name;
    for (const each of this.tabs) {
      const selected = each.id === `tab-${name}`;
      each.setAttribute("aria-selected", String(selected));
      each.tabIndex = selected ? 0 : -1;
    }
    this.panel.setAttribute("aria-labelledby", `tab-${name}`);
    const make = {
      Story: story,
      Rollout: rollout,
      Traffic: traffic,
      Events: events,
      Logs: logsOf,
      Terminal: terminal,
      Containers: containers,
      YAML: yamlOf,
    }[name];
    this.content = make(this.shown);
    this.panel.replaceChildren(this.content);
  }

  /** Show the newest state of the object, undefined if it is not there (any more). */
  update(object, now) {
    if (!this.key) return;
    if (!object) return text(this.state, "it is not among the objects that the filters select, or does not exist");
    text(
      this.state,
      [object.state.word, object.state.detail, object.created ? `created ${age(now - object.created)} ago` : ""]
        .filter(Boolean)
        .join(" · "),
    );
    if (object === this.shown) return;
    const first = !this.shown.state;
    this.shown = object;
    if (this.tab === "Containers" || (first && ["Logs", "Rollout", "Terminal"].includes(this.tab))) this.select(this.tab);
  }

  arrows(event) {
    if (event.target.getAttribute("role") !== "tab") return;
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const next = this.tabs[(this.tabs.indexOf(event.target) + step + this.tabs.length) % this.tabs.length];
    next.click();
    next.focus();
  }
}

/** Return what is stored of an event. */
export function eventOf({ metadata, series, reason, message, type, ...event }) {
  const time = Date.parse(series?.lastObservedTime || event.lastTimestamp || event.eventTime || metadata.creationTimestamp) || 0;
  const count = series?.count || event.count || 1;
  const often = count > 1 ? ` (x${count})` : "";
  return { uid: metadata.uid, time, warning: type === "Warning", text: `${clock(time)} ${cut(reason, 128)}: ${cut(message)}${often}` };
}

function events({ kind, namespace, name }) {
  const list = el("ol", { class: "moments" });
  const fieldSelector = `involvedObject.kind=${kind},involvedObject.name=${name}`;
  const path = `/api/v1/namespaces/${encodeURIComponent(namespace || "default")}/events`;
  const collection = new Collection("events", path, eventOf, { fieldSelector }, MOST_EVENTS);
  return following([collection], list, () => {
    const found = [...collection.items.values()].sort((a, b) => a.time - b.time);
    const left = Math.max(0, found.length - MOST_SHOWN);
    keyed(
      list,
      found.slice(left),
      (event) => event.uid,
      () => el("li"),
      (item, event) => {
        text(item, event.text);
        item.className = event.warning ? "warning" : "";
      },
    );
    if (left) return `${collection.more ? "more" : left} older events are not shown`;
    return collection.listed && !found.length ? "there are no events" : "";
  });
}

function logsOf(object) {
  return object.containers ? logs(object) : el("p", {}, "reading…");
}

function containers(object) {
  const items = (object.containers || []).map((each) => {
    const kind = each.sidecar ? "sidecar" : each.init ? "init container" : "container";
    const exit = each.exit === undefined ? "" : `exit code ${each.exit}`;
    const state = [each.state, each.reason, exit, each.ready ? "ready" : "not ready", `${each.restarts} restarts`]
      .filter(Boolean)
      .join(" · ");
    return el(
      "li",
      {},
      el("h3", {}, each.name),
      el("p", { class: "hint" }, `${kind}, image ${each.image}`),
      el("p", {}, state),
      each.message ? el("p", {}, each.message) : null,
    );
  });
  if (object.more) items.push(el("li", {}, `${object.more} more containers are not shown: the YAML has them`));
  return items.length ? el("ul", { class: "containers" }, items) : el("p", {}, "reading…");
}

function yamlOf(object) {
  const place = el("div", { "aria-busy": "true" }, "reading…");
  getJson(pathOf(object))
    .then(
      (found) => {
        const shown = yaml(found);
        place.replaceChildren(copyButton(shown, "Copy the YAML"), el("pre", { tabindex: "0", "aria-label": "YAML" }, shown));
      },
      (error) => place.replaceChildren(el("p", { class: "failure" }, error.message)),
    )
    .finally(() => place.removeAttribute("aria-busy"));
  return place;
}
