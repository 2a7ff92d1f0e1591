// Requests to the server of the page, with the session's token; the other half of the session is a cookie.

const TOKEN = "wherry-page";
let memory = "";

export class ApiError extends Error {
  constructor(status, message, reason) {
    super(message);
    this.status = status;
    this.reason = reason;
  }
}

function token() {
  try {
    return localStorage.getItem(TOKEN) || memory;
  } catch {
    return memory;
  }
}

function setToken(value) {
  memory = value;
  try {
    localStorage.setItem(TOKEN, value);
  } catch {
    // Storage is off: the session lasts as long as this tab.
  }
}

/** Exchange the link's secret for a session. */
export async function exchange(link) {
  const options = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ link }) };
  setToken((await (await checked(fetch("/session", options))).json()).token);
}

async function checked(sent) {
  let answer;
  try {
    answer = await sent;
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "wherry ui does not answer: is it still running?", "Unreachable");
  }
  if (answer.ok) return answer;
  let body = {};
  try {
    body = await answer.json();
  } catch {
    // The status alone says it.
  }
  throw new ApiError(answer.status, String(body?.message || `HTTP status ${answer.status}`), String(body?.reason || ""));
}

/** GET a path and return the response; raises ApiError for other statuses than 2xx. */
export function get(path, query = {}, signal = undefined) {
  const pairs = query instanceof URLSearchParams ? query : new URLSearchParams(Object.entries(query).filter(([, value]) => value !== ""));
  const found = pairs.size ? `${path}?${pairs}` : path;
  return checked(fetch(found, { headers: { "x-wherry-page": token() }, signal, cache: "no-store" }));
}

/** GET a path and return its JSON. */
export async function getJson(path, query, signal) {
  return (await get(path, query, signal)).json();
}

/** Open a WebSocket of the server of the page, which gets the session's token as a subprotocol. */
export function socket(path, query) {
  return new WebSocket(`${location.origin.replace("http", "ws")}${path}?${query}`, ["wherry.terminal", `wherry.token.${token()}`]);
}

/** Yield the text of a response as it comes. */
export async function* texts(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
