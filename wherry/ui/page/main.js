// The page: filters, live collections, and one rendering for each frame in which something changed.

import { exchange, getJson } from "./api.js";
import { attribute, el, inFrame, keyed, plain, text } from "./dom.js";
import { Drawer, shows } from "./drawer.js";
import { collections } from "./collections.js";
import * as filters from "./filters.js";
import { History } from "./history.js";
import { listen } from "./input.js";
import { Inside } from "./inside.js";
import { showProblems, showServices, showWorkloads } from "./lists_view.js";
import { Live } from "./live.js";
import { legend, showNodes } from "./nodes_view.js";
import { problems } from "./problems.js";
import { onOver, resume } from "./session.js";
import { withEndpoints } from "./services.js";
import { Stopped } from "./stopped.js";
import { TimeView } from "./time_view.js";

const byId = (id) => document.getElementById(id);
const WORKLOADS = ["deployments", "statefulsets", "daemonsets", "jobs"];
const OF_SERVICES = ["services", "endpointslices", "networkpolicies"];
const NAMESPACE = /^[a-z0-9-]{0,63}$/;
const TICK = 5000;
const MOST_NODES = 500;
const SECTIONS = ["problems", "nodes", "workloads", "services"];
const state = { filters: filters.read(), collections: {}, live: null, about: { namespace: "default" }, history: new History(), former: null, services: null, note: "", failure: "" };
const drawer = new Drawer(byId("drawer"), { closed: () => open("") });
const stopped = new Stopped(() => {
  state.services = null;
  invalidate();
});
const inside = new Inside(byId("inside"), () => current("nodes").map((each) => each.name).slice(0, MOST_NODES));
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
  const live = new Live(list, { changed: (each) => live === state.live && changed(each), state: (name, why) => live === state.live && connection(name, why) });
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
  const at = moment();
  if (!at) return (state.former = null);
  if (state.former?.at !== at || state.former.history !== state.history) state.former = { at, history: state.history, items: state.history.at(at) };
  return state.former.items;
}

function moment() {
  return /^\d{1,15}$/.test(state.filters.at) ? Number(state.filters.at) : 0;
}

function itemsOf(name) {
  const items = moment() ? shownItems()?.get(name) : state.collections[name]?.items;
  return [...(items?.values() || [])];
}

function services(now) {
  const slices = state.collections.endpointslices;
  if (moment()) return withEndpoints(itemsOf("services"), itemsOf("endpointslices"), new Map(), true, now, new Map());
  state.services ??= withEndpoints(itemsOf("services"), itemsOf("endpointslices"), stopped.found, Boolean(slices?.listed), now);
  return state.services;
}

function more(section, number, what) {
  const place = section.querySelector(".more");
  place.hidden = !number;
  text(place, number ? `${number} more ${what} are not shown: use the filters.` : "");
}

function showView() {
  const isInside = state.filters.view === "inside";
  inside.show(isInside, state.about.parts);
  for (const each of SECTIONS) byId(each).hidden = isInside;
  for (const each of document.querySelectorAll("[data-view]")) attribute(each, "aria-current", each.dataset.view === (isInside ? "inside" : "") ? "page" : null);
  return isInside;
}

function render() {
  const now = moment() || Date.now();
  time.show(moment());
  document.body.classList.toggle("past", Boolean(moment()));
  if (showView()) {
    showNotes();
    return showDrawer(now);
  }
  const words = filters.wordsOf(state.filters.text);
  const selected = (list) => list.filter((each) => filters.matches(each, words));
  const pods = selected(itemsOf("pods"));
  const workloads = selected(WORKLOADS.flatMap(itemsOf));
  const allNodes = itemsOf("nodes");
  const withPods = new Set(pods.map((each) => each.node));
  const nodes = allNodes.filter((each) => filters.matches(each, words) || withPods.has(each.name));
  const shownServices = selected(services(now));
  const found = problems(selected(allNodes), [...workloads, ...shownServices], pods, now);
  const section = { problems: byId("problems"), nodes: byId("nodes"), workloads: byId("workloads"), services: byId("services") };
  more(section.problems, showProblems(section.problems.querySelector("ul"), found), "problems");
  more(section.nodes, showNodes(section.nodes.querySelector(".tiles"), nodes, pods, now), "nodes");
  more(section.workloads, showWorkloads(section.workloads.querySelector("tbody"), workloads, now), "workloads");
  more(section.services, showServices(section.services.querySelector("tbody"), shownServices, now), "Services");
  const listed = Object.values(state.collections).every((each) => each.listed || each.refused);
  const unknown = moment() && !shownItems();
  text(byId("problems-count"), unknown ? "What was wrong is not known" : found.length ? `What is wrong (${found.length})` : listed ? "Nothing is wrong" : "What is wrong");
  document.title = found.length ? `(${found.length}) Wherry` : "Wherry";
  showNotes();
  showNamespaces();
  showDrawer(now);
}

function showNotes() {
  const partly = state.filters.text || state.filters.labels || state.filters.namespace;
  const notes = [
    state.failure,
    state.note,
    moment() && !shownItems() ? "States of objects at this moment are not recorded: the page was not open. The decisions before it are above." : "",
    moment() && shownItems() ? "A former moment: details that are opened are those of now." : "",
    ...Object.values(state.collections).filter((each) => each.refused).map((each) => `${each.name}: ${each.refused}`),
    stopped.hidden ? `Policies of ${stopped.hidden} more namespaces are not evaluated: choose a namespace.` : "",
    partly ? "Bars count the pods that the filters select." : "",
  ].filter(Boolean);
  keyed(byId("notes"), notes, (each) => each, () => el("p", { class: "note" }), text);
}

function showNamespaces() {
  const names = current("namespaces").map((each) => each.name);
  keyed(byId("namespaces"), names, (each) => each, (name) => el("option", { value: name }), () => {});
}

function showDrawer(now) {
  const [kind, namespace, name] = state.filters.show.split("/");
  if (!name || !shows(kind)) return drawer.close();
  const plural = kind === "Pod" ? "pods" : kind === "Node" ? "nodes" : `${kind.toLowerCase()}s`;
  const known = (moment() ? shownItems()?.get(plural) : state.collections[plural]?.items)?.get(`${namespace}/${name}`);
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
