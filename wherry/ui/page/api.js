// Requests to the server of the page, with the session's token; the other half of the session is a cookie.

import { end, setToken, token, whyOver } from "./session.js";

const UNREACHABLE = "wherry ui does not answer: run it again, and close this tab";

export class ApiError extends Error {
  constructor(status, message, reason) {
    super(message);
    this.status = status;
    this.reason = reason;
  }
}

/** Exchange the link's secret for a session. */
export async function exchange(link) {
  const options = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ link }) };
  setToken((await (await checked(() => fetch("/session", options))).json()).token);
}

// Return what a step of a request returns; if its server is not reached, nothing is sent to that address again.
async function reached(step) {
  if (whyOver()) throw new ApiError(0, whyOver(), "Over");
  try {
    return await step();
  } catch (error) {
    if (error.name === "AbortError" || error instanceof ApiError || error instanceof SyntaxError) throw error;
    end(UNREACHABLE, { forget: false });
    throw new ApiError(0, UNREACHABLE, "Unreachable");
  }
}

async function checked(send) {
  const answer = await reached(send);
  if (answer.ok) return answer;
  let body = {};
  try {
    body = await answer.json();
  } catch {
    // The status alone says it.
  }
  if (answer.status === 401) end(String(body?.message || "the session has ended"), { forget: true });
  throw new ApiError(answer.status, String(body?.message || `HTTP status ${answer.status}`), String(body?.reason || ""));
}

/** GET a path and return the response; raises ApiError for other statuses than 2xx. */
export function get(path, query = {}, signal = undefined) {
  const pairs = query instanceof URLSearchParams ? query : new URLSearchParams(Object.entries(query).filter(([, value]) => value !== ""));
  const found = pairs.size ? `${path}?${pairs}` : path;
  return checked(() => fetch(found, { headers: { "x-wherry-page": token() }, signal, cache: "no-store" }));
}

/** GET a path and return its JSON. */
export async function getJson(path, query, signal) {
  return reached(async () => (await get(path, query, signal)).json());
}

/** Open a WebSocket of the server of the page, which gets the session's token as a subprotocol. */
export function socket(path, query) {
  if (whyOver()) throw new ApiError(0, whyOver(), "Over");
  return new WebSocket(`${location.origin.replace("http", "ws")}${path}?${query}`, ["wherry.terminal", `wherry.token.${token()}`]);
}

/** Yield the text of a response as it comes. */
export async function* texts(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (;;) {
      const { done, value } = await reached(() => reader.read());
      if (done) return;
      yield value;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
