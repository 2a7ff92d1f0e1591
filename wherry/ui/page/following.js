// A tab of the drawer that follows collections of its own, as long as it is shown.

import { el, text } from "./dom.js";
import { Live } from "./live.js";

/** Follow collections: `show` runs once in a frame in which they changed. Returns an element with `content` and a method `close`. */
export function following(collections, content, show) {
  const state = el("p", { role: "status", class: "hint" }, "reading…");
  let planned = false;
  let ended = false;
  const changed = () => {
    if (planned) return;
    planned = true;
    requestAnimationFrame(() => {
      planned = false;
      if (ended) return;
      const refused = collections.filter((each) => each.refused).map((each) => `${each.name}: ${each.refused}`);
      text(state, [show(), ...refused].filter(Boolean).join(" · "));
    });
  };
  const live = new Live(collections, { changed, state: (name, why) => (name === "lost" ? text(state, `${why}: trying again`) : changed()) });
  live.run();
  const place = el("div", {}, content, state);
  place.close = () => {
    ended = true;
    live.stop();
  };
  return place;
}
