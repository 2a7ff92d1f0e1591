// The sections of the cluster view, and the notes above them.

import { attribute, byId, el, keyed, text } from "./dom.js";
import { showProblems, showServices, showWorkloads } from "./lists_view.js";
import { showNodes } from "./nodes_view.js";

const SECTIONS = ["problems", "nodes", "workloads", "services"];

/** Show the view that is chosen: the inside, or the sections of the cluster. */
export function showView(isInside) {
  for (const each of SECTIONS) byId(each).hidden = isInside;
  const shown = isInside ? "inside" : "";
  for (const each of document.querySelectorAll("[data-view]")) attribute(each, "aria-current", each.dataset.view === shown ? "page" : null);
}

/** Show the objects that the filters select, each section with its number of those that are too many. */
export function showSections({ problems, nodes, pods, workloads, services }, now) {
  const place = (name, selector) => byId(name).querySelector(selector);
  more("problems", showProblems(place("problems", "ul"), problems), "problems");
  more("nodes", showNodes(place("nodes", ".tiles"), nodes, pods, now), "nodes");
  more("workloads", showWorkloads(place("workloads", "tbody"), workloads, now), "workloads");
  more("services", showServices(place("services", "tbody"), services, now), "Services");
}

function more(section, number, what) {
  const place = byId(section).querySelector(".more");
  place.hidden = !number;
  text(place, number ? `${number} more ${what} are not shown: use the filters.` : "");
}

/** Show how much is wrong: in the heading and in the title of the tab. */
export function showCount(number, { unknown, complete }) {
  const nothing = complete ? "Nothing is wrong" : "What is wrong";
  text(byId("problems-count"), unknown ? "What was wrong is not known" : number ? `What is wrong (${number})` : nothing);
  document.title = number ? `(${number}) Wherry` : "Wherry";
}

/** Show sentences about what is shown; empty ones are left out. */
export function showNotes(notes) {
  keyed(
    byId("notes"),
    notes.filter(Boolean),
    (each) => each,
    () => el("p", { class: "note" }),
    text,
  );
}

/** Offer names of namespaces for the filter. */
export function showNamespaces(names) {
  keyed(
    byId("namespaces"),
    names,
    (each) => each,
    (name) => el("option", { value: name }),
    () => {},
  );
}
