// Nodes as tiles, their pods as cells.

import { attribute, el, keyed, text } from "./dom.js";
import { level } from "./pods.js";
import { key } from "./problems.js";
import { bytes, cpus } from "./quantity.js";

const MOST_TILES = 300;
const MOST_CELLS = 300;
const MARKS = { ok: "", wait: "…", bad: "!", done: "✓", end: "–" };
const LEVELS = { ok: "running", wait: "starting or not ready", bad: "wrong", done: "finished", end: "ending" };
const BARS = [
  { name: "CPU", field: "cpu", words: cpus },
  { name: "Memory", field: "memory", words: bytes },
  { name: "Pods", field: "pods", words: String },
];

export function legend(place) {
  for (const [each, meaning] of Object.entries(LEVELS)) {
    place.append(el("span", { class: "legend" }, el("span", { class: `cell ${each}`, "aria-hidden": "true" }, MARKS[each]), ` ${meaning}`));
  }
}

/** Show nodes with those of the pods that are on them; pods without a node have a tile too. Returns how many are not shown. */
export function showNodes(place, nodes, pods, now) {
  const groups = new Map(nodes.map((node) => [node.name, { node, name: node.name, pods: [] }]));
  for (const pod of pods) {
    const name = pod.finished && !pod.node ? "" : pod.node;
    if (!groups.has(name)) groups.set(name, { node: null, name, pods: [] });
    groups.get(name).pods.push(pod);
  }
  const order = (a, b) => (a.name === "") - (b.name === "") || (a.name < b.name ? -1 : 1);
  const tiles = [...groups.values()].sort(order);
  keyed(
    place,
    tiles.slice(0, MOST_TILES),
    (group) => group.name,
    tile,
    (element, group) => showTile(element, group, now),
  );
  return Math.max(0, tiles.length - MOST_TILES);
}

function tile({ name }) {
  const title = name ? el("button", { type: "button", class: "link", "data-open": `Node//${name}` }, name) : "not on a node";
  const element = el("section", { class: "tile", "aria-label": name ? `node ${name}` : "pods that are not on a node" });
  element.parts = {
    state: el("span", { class: "badge" }),
    bars: new Map(),
    cells: el("div", { class: "cells", role: "group", "aria-label": "Pods" }),
    more: el("p", { class: "hint" }),
  };
  const bars = el("div", { class: "bars" });
  if (name) for (const each of BARS) bars.append(bar(element.parts.bars, each));
  element.append(el("h3", {}, title, " ", element.parts.state), bars, element.parts.cells, element.parts.more);
  return element;
}

function bar(bars, { name, field }) {
  const fill = el("span", { class: "fill" });
  const meter = el(
    "span",
    { class: "meter", role: "meter", "aria-label": `${name} requested`, "aria-valuemin": "0", "aria-valuemax": "100" },
    fill,
  );
  const words = el("span", { class: "amount" });
  bars.set(field, { fill, meter, words });
  return el("div", { class: "bar" }, el("span", {}, name), meter, words);
}

function showTile(element, { node, pods }, now) {
  const { state, bars, cells, more } = element.parts;
  text(state, node ? node.state.word : "");
  state.className = `badge ${node ? node.state.level : ""}`;
  const used = { cpu: 0, memory: 0, pods: 0 };
  for (const pod of pods) {
    if (pod.finished) continue;
    used.cpu += pod.cpu;
    used.memory += pod.memory;
    used.pods += 1;
  }
  for (const { field, words } of BARS) if (bars.has(field)) showBar(bars.get(field), used[field], node ? node[field] : 0, words);
  showCells(cells, more, pods, now);
}

/** Show pods as cells, and in `more` how many are not shown. One is reached with the tab key, the others with arrows. */
export function showCells(cells, more, pods, now) {
  keyed(
    cells,
    pods.slice(0, MOST_CELLS),
    (pod) => pod.uid,
    cell,
    (each, pod) => showCell(each, pod, level(pod.state, now)),
  );
  if (cells.firstChild && !cells.querySelector(':scope > [tabindex="0"]')) cells.firstChild.tabIndex = 0;
  text(more, pods.length > MOST_CELLS ? `${pods.length - MOST_CELLS} more pods` : "");
}

function showBar({ fill, meter, words }, used, size, inWords) {
  const share = size ? Math.min(100, Math.round((used / size) * 100)) : 0;
  const said = size ? `${inWords(used)} of ${inWords(size)}` : inWords(used);
  attribute(meter, "aria-valuenow", share);
  attribute(meter, "aria-valuetext", said);
  text(words, said);
  if (fill.share !== share) fill.style.width = `${(fill.share = share)}%`;
}

function cell(pod) {
  return el("button", { type: "button", tabindex: "-1", "data-open": key(pod) });
}

function showCell(element, pod, shownLevel) {
  if (element.shown === pod && element.level === shownLevel) return;
  element.shown = pod;
  element.level = shownLevel;
  element.className = `cell ${shownLevel}`;
  const label = `${pod.namespace}/${pod.name}: ${pod.state.word}`;
  attribute(element, "aria-label", label);
  attribute(element, "title", label);
  text(element, MARKS[shownLevel]);
}

/** Move the focus between cells with the arrow keys. */
export function moveFocus(place, event) {
  const current = event.target;
  if (!current.classList?.contains("cell") || !event.key.startsWith("Arrow")) return;
  event.preventDefault();
  const cells = [...place.querySelectorAll("button.cell")];
  const index = cells.indexOf(current);
  const next = { ArrowRight: cells[index + 1], ArrowLeft: cells[index - 1] }[event.key] ?? vertical(cells, current, event.key);
  if (!next) return;
  for (const each of next.parentElement.querySelectorAll('[tabindex="0"]')) each.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

function vertical(cells, current, direction) {
  const sign = { ArrowDown: 1, ArrowUp: -1 }[direction];
  if (!sign) return undefined;
  const from = current.getBoundingClientRect();
  let best;
  let least = Infinity;
  for (const each of cells) {
    const rect = each.getBoundingClientRect();
    const below = (rect.top - from.top) * sign;
    const distance = below * 4 + Math.abs(rect.left - from.left);
    if (below > 4 && distance < least) [best, least] = [each, distance];
  }
  return best;
}
