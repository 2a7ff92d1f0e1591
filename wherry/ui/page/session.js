// The session of this page. It ends with the command: whoever has its address later, is not the server that the page came from.

const TOKEN = "wherry-page";
const listeners = new Set();
let memory = "";
let over = "";

export function token() {
  try {
    return localStorage.getItem(TOKEN) || memory;
  } catch {
    return memory;
  }
}

export function setToken(value) {
  memory = value;
  try {
    if (value) localStorage.setItem(TOKEN, value);
    else localStorage.removeItem(TOKEN);
  } catch {
    // Storage is off: the session lasts as long as this tab.
  }
}

/** Return why nothing is requested any more; "" while the session lasts. */
export function whyOver() {
  return over;
}

/** End all requests, and call the listeners; `forget` deletes the token, otherwise `resume` can continue. */
export function end(why, { forget }) {
  if (forget) setToken("");
  if (over) return;
  over = why;
  for (const each of listeners) each(why, !forget);
}

/** Allow requests again, after a person has said so. */
export function resume() {
  over = "";
}

/** Call a function when the session is over, with the reason and whether it can be resumed. */
export function onOver(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}
