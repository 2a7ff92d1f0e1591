// The story of an object: causes, each with its fix and a button that copies it, and what happened.

import { getJson } from "./api.js";
import { clock, copyButton, el } from "./dom.js";

/** Return an element that loads the story of an object; what happened is shown at once if it is `open`. */
export function story(object, open = true) {
  const place = el("div", { class: "story", "aria-live": "polite", "aria-busy": "true" }, "reading…");
  load(place, object, open);
  return place;
}

async function load(place, object, open) {
  const { kind, namespace, name } = object;
  place.setAttribute("aria-busy", "true");
  let shown;
  try {
    shown = parts(await getJson("/why", { kind, namespace, name }), open);
  } catch (error) {
    shown = [el("p", { class: "failure" }, error.message)];
  }
  const again = el("button", { type: "button" }, "Read again");
  again.addEventListener("click", () => load(place, object, open));
  place.replaceChildren(...shown, again);
  place.removeAttribute("aria-busy");
}

function parts(story, open) {
  const causes = story.causes.map(cause);
  return [
    el("p", { class: "state" }, story.state),
    causes.length ? el("ol", { class: "causes" }, causes) : el("p", {}, story.nothing),
    story.unknown.length
      ? el(
          "ul",
          { class: "unknown" },
          story.unknown.map((each) => el("li", {}, `not known: ${each}`)),
        )
      : null,
    story.moments.length
      ? el("details", { open }, el("summary", {}, "What happened"), el("ol", { class: "moments" }, story.moments.map(moment)))
      : null,
  ].filter(Boolean);
}

function cause({ text, fix, waits }) {
  const found = el("li", {}, el("p", {}, text));
  if (fix) found.append(el("p", { class: "fix" }, el("code", {}, fix), " ", copyButton(fix, "Copy the fix")));
  else if (waits) found.append(el("p", {}, "No fix is needed: it ends by itself."));
  return found;
}

function moment({ time, actor, text, count }) {
  const often = count > 1 ? ` (x${count})` : "";
  return el("li", {}, el("time", { datetime: time }, clock(time)), ` ${actor ? `${actor}: ` : ""}${text}${often}`);
}
