// The list of what is wrong, and the table of workloads.

import { el, keyed, text } from "./dom.js";
import { level } from "./pods.js";
import { key } from "./problems.js";
import { story } from "./story.js";

const MOST_PROBLEMS = 100;
const MOST_ROWS = 300;

/** Show problems; returns how many are not shown. */
export function showProblems(place, problems) {
  keyed(
    place,
    problems.slice(0, MOST_PROBLEMS),
    (each) => each.key,
    problem,
    (item, each) => {
      const { object, others } = each;
      item.object = object;
      text(item.parts.name, `${object.kind} ${object.namespace ? `${object.namespace}/` : ""}${object.name}`);
      text(item.parts.word, object.state.word);
      text(item.parts.others, others ? `and ${others} more of ${object.owner.kind} ${object.owner.name}` : "");
      text(item.parts.detail, object.state.detail);
      item.parts.details.dataset.open = key(object);
    },
  );
  return Math.max(0, problems.length - MOST_PROBLEMS);
}

function problem({ object }) {
  const item = el("li");
  const parts = {
    name: el("span", { class: "name" }),
    word: el("span", { class: "badge bad" }),
    others: el("span", { class: "hint" }),
    detail: el("p", { class: "detail" }),
  };
  const toggle = el(
    "button",
    { type: "button", class: "toggle", "aria-expanded": "false" },
    parts.name,
    " ",
    parts.word,
    " ",
    parts.others,
  );
  parts.details = el("button", { type: "button", class: "link" }, "Details");
  item.parts = parts;
  item.object = object;
  let shown = null;
  toggle.addEventListener("click", () => {
    if (shown) shown.remove();
    shown = shown ? null : story(item.object, false);
    toggle.setAttribute("aria-expanded", String(Boolean(shown)));
    if (shown) item.append(shown);
  });
  item.append(el("div", { class: "row" }, toggle, parts.details), parts.detail);
  return item;
}

/** Move the focus between problems with the arrow keys. */
export function moveBetweenProblems(place, event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step || !event.target.classList.contains("toggle")) return;
  event.preventDefault();
  const toggles = [...place.querySelectorAll(".toggle")];
  toggles[toggles.indexOf(event.target) + step]?.focus();
}

/** Show workloads; returns how many are not shown. */
export function showWorkloads(place, workloads, now) {
  keyed(place, workloads.slice(0, MOST_ROWS), key, row, (element, each) => {
    const shownLevel = level(each.state, now);
    if (element.shown === each && element.level === shownLevel) return;
    element.shown = each;
    element.level = shownLevel;
    const { ready, state } = element.parts;
    text(ready, `${each.ready}/${each.desired}`);
    text(state, each.state.word);
    state.className = `badge ${shownLevel}`;
  });
  return Math.max(0, workloads.length - MOST_ROWS);
}

function row(object) {
  const parts = { ready: el("td"), state: el("span", { class: "badge" }) };
  const element = el("tr", {}, heading(object), el("td", {}, object.namespace), parts.ready, el("td", {}, parts.state));
  element.parts = parts;
  return element;
}

function heading(object) {
  return el(
    "th",
    { scope: "row" },
    el("button", { type: "button", class: "link", "data-open": key(object) }, `${object.kind} ${object.name}`),
  );
}

/** Show Services; returns how many are not shown. */
export function showServices(place, services, now) {
  keyed(place, services.slice(0, MOST_ROWS), key, serviceRow, (element, each) => {
    const shownLevel = level(each.state, now);
    if (element.shown === each && element.level === shownLevel) return;
    element.shown = each;
    element.level = shownLevel;
    const { address, ports, endpoints, state, detail } = element.parts;
    text(address, each.address);
    text(ports, each.ports);
    text(endpoints, each.type === "ExternalName" ? "" : `${each.ready}/${each.all}`);
    text(state, each.state.word);
    state.className = `badge ${shownLevel}`;
    text(detail, each.state.detail);
  });
  return Math.max(0, services.length - MOST_ROWS);
}

function serviceRow(object) {
  const parts = {
    address: el("td"),
    ports: el("td"),
    endpoints: el("td"),
    state: el("span", { class: "badge" }),
    detail: el("p", { class: "detail" }),
  };
  const element = el(
    "tr",
    {},
    heading(object),
    el("td", {}, object.namespace),
    parts.address,
    parts.ports,
    parts.endpoints,
    el("td", {}, parts.state, parts.detail),
  );
  element.parts = parts;
  return element;
}
