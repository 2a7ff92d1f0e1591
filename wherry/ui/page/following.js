// A tab of the drawer that follows collections of its own, as long as it is shown.

import { el, inFrame, text } from "./dom.js";
import { Live } from "./live.js";

/** Follow collections: `show` runs once in a frame in which they changed. Returns an element with `content` and a method `close`. */
export function following(collections, content, show) {
  const state = el("p", { role: "status", class: "hint" }, "reading…");
  let ended = "";
  const changed = inFrame(() => {
    if (live.stopped) return;
    const refused = collections.filter((each) => each.refused).map((each) => `${each.name}: ${each.refused}`);
    text(state, ended || [show(), ...refused].filter(Boolean).join(" · "));
  });
  const live = new Live(collections, {
    changed,
    state: (name, why) => {
      ended = name === "ended" ? why : "";
      if (name === "lost") text(state, `${why}: trying again`);
      else changed();
    },
  });
  live.run();
  const place = el("div", {}, content, state);
  place.close = () => live.stop();
  return place;
}
