// Keys, clicks and filters of a person, as changes of what the page shows.

import { byId } from "./dom.js";
import * as filters from "./filters.js";
import { moveBetweenProblems } from "./lists_view.js";
import { moveFocus } from "./nodes_view.js";

/** Listen to input: `shown` returns the open object, `open` opens one or none (""), `change` sets filters, `typed` one of them. */
export function listen({ shown, open, change, typed }) {
  document.addEventListener("keydown", (event) => keys(event, shown, open, typed));
  document.addEventListener("click", (event) => {
    const key = event.target.closest?.("[data-open]")?.dataset.open;
    const view = event.target.closest?.("[data-view]")?.dataset.view;
    if ((!key && view === undefined) || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault(); // of a link in a picture
    if (key) open(key);
    else change({ view }, true);
  });
  byId("nodes").addEventListener("keydown", (event) => moveFocus(byId("nodes"), event));
  byId("problems").addEventListener("keydown", (event) => moveBetweenProblems(byId("problems"), event));
  byId("text").addEventListener("input", (event) => typed("text", event.target.value));
  for (const name of ["namespace", "labels"]) byId(name).addEventListener("change", (event) => typed(name, event.target.value.trim()));
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  window.addEventListener("popstate", () => change(filters.read()));
}

function keys(event, shown, open, typed) {
  const typing = event.target.matches("input, select, textarea");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    byId("text").focus();
  } else if (event.key === "Escape") {
    if (event.target.id === "text" && event.target.value) {
      event.target.value = "";
      typed("text", "");
    } else if (shown()) open("");
    else document.activeElement?.blur();
  }
}
