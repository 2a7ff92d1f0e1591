// The page: filters, live collections, and one rendering for each frame in which something changed.

import { exchange, getJson } from "./api.js";
import { byId, inFrame, plain, text } from "./dom.js";
import { Drawer, shows } from "./drawer.js";
import { collections } from "./collections.js";
import * as filters from "./filters.js";
import { History } from "./history.js";
import { listen } from "./input.js";
import { Inside } from "./inside.js";
import { Live } from "./live.js";
import { legend } from "./nodes_view.js";
import { problems } from "./problems.js";
import { showCount, showNamespaces, showNotes, showSections, showView } from "./sections.js";
import { onOver, resume } from "./session.js";
import { withEndpoints } from "./services.js";
import { Stopped } from "./stopped.js";
import { TimeView } from "./time_view.js";

const WORKLOADS = ["deployments", "statefulsets", "daemonsets", "jobs"];
const OF_SERVICES = ["services", "endpointslices", "networkpolicies"];
const NAMESPACE = /^[a-z0-9-]{0,63}$/;
const TICK = 5000;
const MOST_NODES = 500;
const state = {
  filters: filters.read(),
  at: 0,
  collections: {},
  live: null,
  about: { namespace: "default" },
  history: new History(),
  former: null,
  services: null,
  note: "",
  failure: "",
};
state.at = filters.momentOf(state.filters);
const drawer = new Drawer(byId("drawer"), { closed: () => open("") });
const stopped = new Stopped(() => {
  state.services = null;
  invalidate();
});
const inside = new Inside(byId("inside"), () =>
  current("nodes")
    .map((each) => each.name)
    .slice(0, MOST_NODES),
);
const time = new TimeView(byId("time").querySelector("div"), {
  moved: (at) => setFilters({ at: at ? String(at) : "" }),
  context: () => ({ namespace: state.filters.namespace, history: state.history }),
});
const invalidate = inFrame(() => render());
let begun = false;

// -- data -----------------------------------------------------------------------------------------------------------------
function connect() {
  state.live?.stop();
  state.failure = NAMESPACE.test(state.filters.namespace) ? "" : "a namespace has lower case letters, digits and hyphens";
  if (state.failure) return invalidate();
  const list = collections(state.filters);
  const live = new Live(list, {
    changed: (each) => live === state.live && changed(each),
    state: (name, why) => live === state.live && connection(name, why),
  });
  state.live = live;
  state.services = null;
  state.history = new History();
  for (const each of list) each.history = state.history;
  state.collections = Object.fromEntries(list.map((each) => [each.name, each]));
  connection("connecting", "");
  live.run();
  invalidate();
}

function changed(collection) {
  if (collection.name === "pods" && collection.refused && !state.filters.namespace) {
    state.note = `You may not list the pods of all namespaces: the page shows namespace ${state.about.namespace}.`;
    setFilters({ namespace: state.about.namespace });
    return;
  }
  if (OF_SERVICES.includes(collection.name)) {
    state.services = null;
    stopped.follow(current("networkpolicies"), current("endpointslices"));
  }
  invalidate();
}

function connection(name, why) {
  const words = { connecting: "connecting", live: "live", lost: `not live, trying again: ${why}`, refused: why, ended: why }[name];
  const place = byId("connection");
  text(place, words);
  place.className = name;
}

// What is shown stays; nothing is read, started or copied until a person resumes, and nothing at all when the session has ended.
onOver((why, canResume) => {
  state.live?.stop();
  connection("ended", why);
  byId("again").hidden = !canResume;
  for (const each of document.querySelectorAll("button.copy")) each.disabled = true;
});

byId("again").addEventListener("click", () => {
  resume();
  byId("again").hidden = true;
  for (const each of document.querySelectorAll("button.copy")) each.disabled = false;
  connection("connecting", "");
  start();
});

// -- filters --------------------------------------------------------------------------------------------------------------
function setFilters(change, push = false) {
  const former = state.filters;
  state.filters = { ...former, ...change };
  state.at = filters.momentOf(state.filters);
  filters.write(state.filters, push);
  showFilters();
  if (former.namespace !== state.filters.namespace || former.labels !== state.filters.labels) connect();
  invalidate();
}

function showFilters() {
  for (const name of ["namespace", "labels", "text"]) {
    const input = byId(name);
    if (document.activeElement !== input || !input.value) input.value = state.filters[name];
  }
}

function typed(name, value) {
  if (name !== "text") state.note = "";
  setFilters({ [name]: value });
}

function open(key) {
  setFilters({ show: key }, true);
}

// -- rendering ------------------------------------------------------------------------------------------------------------
function current(name) {
  return [...(state.collections[name]?.items.values() || [])];
}

// The collections of the moment that is shown; null if it is a former one that the page has not recorded.
function shownItems() {
  const { at } = state;
  if (!at) return (state.former = null);
  if (state.former?.at !== at || state.former.history !== state.history)
    state.former = { at, history: state.history, items: state.history.at(at) };
  return state.former.items;
}

function itemsOf(name) {
  const items = state.at ? shownItems()?.get(name) : state.collections[name]?.items;
  return [...(items?.values() || [])];
}

function services(now) {
  const slices = state.collections.endpointslices;
  if (state.at) return withEndpoints(itemsOf("services"), itemsOf("endpointslices"), new Map(), true, now, new Map());
  state.services ??= withEndpoints(itemsOf("services"), itemsOf("endpointslices"), stopped.found, Boolean(slices?.listed), now);
  return state.services;
}

function render() {
  const now = state.at || Date.now();
  time.show(state.at);
  document.body.classList.toggle("past", Boolean(state.at));
  const isInside = state.filters.view === "inside";
  inside.show(isInside, state.about.parts);
  showView(isInside);
  showNotes(notes());
  if (isInside) return showDrawer(now);
  const words = filters.wordsOf(state.filters.text);
  const selected = (list) => list.filter((each) => filters.matches(each, words));
  const pods = selected(itemsOf("pods"));
  const workloads = selected(WORKLOADS.flatMap(itemsOf));
  const allNodes = itemsOf("nodes");
  const withPods = new Set(pods.map((each) => each.node));
  const nodes = allNodes.filter((each) => filters.matches(each, words) || withPods.has(each.name));
  const shownServices = selected(services(now));
  const found = problems(selected(allNodes), [...workloads, ...shownServices], pods, now);
  showSections({ problems: found, nodes, pods, workloads, services: shownServices }, now);
  const complete = Object.values(state.collections).every((each) => each.listed || each.refused);
  showCount(found.length, { unknown: state.at && !shownItems(), complete });
  showNamespaces(current("namespaces").map((each) => each.name));
  showDrawer(now);
}

function notes() {
  const partly = state.filters.text || state.filters.labels || state.filters.namespace;
  return [
    state.failure,
    state.note,
    state.at && !shownItems()
      ? "States of objects at this moment are not recorded: the page was not open. The decisions before it are above."
      : "",
    state.at && shownItems() ? "A former moment: details that are opened are those of now." : "",
    ...Object.values(state.collections)
      .filter((each) => each.refused)
      .map((each) => `${each.name}: ${each.refused}`),
    ...Object.values(state.collections)
      .filter((each) => each.more)
      .map((each) => `The cluster has more than ${each.most} ${each.name}: choose a namespace or labels.`),
    stopped.hidden ? `Policies of ${stopped.hidden} more namespaces are not evaluated: choose a namespace.` : "",
    partly ? "Bars count the pods that the filters select." : "",
  ];
}

function showDrawer(now) {
  const [kind, namespace, name] = state.filters.show.split("/");
  if (!name || !shows(kind)) return drawer.close();
  const plural = kind === "Pod" ? "pods" : kind === "Node" ? "nodes" : `${kind.toLowerCase()}s`;
  const known = (state.at ? shownItems()?.get(plural) : state.collections[plural]?.items)?.get(`${namespace}/${name}`);
  const object = kind === "Service" ? services(now).find((each) => each.namespace === namespace && each.name === name) : known;
  drawer.open(state.filters.show, object || { kind, namespace, name });
  drawer.update(object, now);
}

async function start() {
  const link = location.hash.slice(1);
  if (link) {
    history.replaceState(null, "", location.pathname + location.search);
    try {
      await exchange(link);
    } catch (error) {
      state.failure = error.message;
    }
  }
  try {
    state.about = await getJson("/about");
  } catch (error) {
    connection("ended", state.failure || error.message);
    text(byId("problems-count"), "No session");
    return;
  }
  document.querySelector("h1").title = plain(state.about.server);
  if (!begun) begin();
  begun = true;
  inside.read();
  connect();
}

function begin() {
  legend(byId("legend"));
  listen({ shown: () => state.filters.show, open, change: setFilters, typed });
  setInterval(invalidate, TICK);
  showFilters();
}

start();
