// Collections that are listed once and then watched, all over one connection.

import { ApiError, get, getJson, texts } from "./api.js";
import { same } from "./history.js";
import { end, whyOver } from "./session.js";

const PAGES = [500, 50, 5, 1]; // objects of an answer; fewer if it is too long
const TOO_LONG = "AnswerTooLong";
const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 15000;
const STEADY = 5000;
const ENDED = "wherry ui has ended: run it again, and close this tab";

/**
 * A collection: `path` and `query` of the API, `keep` returns what is stored of an object; `history` records it, if there is one;
 * `most` is the maximum number of objects.
 */
export class Collection {
  constructor(name, path, keep, query = {}, most = Infinity) {
    Object.assign(this, { name, path, keep, query, most, history: null });
    this.more = false;
    this.items = new Map();
    this.revision = "";
    this.refused = "";
    this.listed = false;
  }

  apply(event) {
    const object = event.object;
    const metadata = object.metadata || {};
    if (event.type === "ERROR") throw new ApiError(object.code || 500, object.message || "the watch ended", object.reason || "");
    if (event.type !== "BOOKMARK") {
      const key = keyOf(metadata);
      const item = event.type === "DELETED" ? null : this.keep(object);
      if (!same(this.items.get(key), item)) {
        if (item === null) this.items.delete(key);
        else this.items.set(key, item);
        if (this.items.size > this.most) {
          this.items.delete(this.items.keys().next().value);
          this.more = true;
        }
        this.history?.change(this.name, key, item, Date.now());
      }
    }
    this.revision = metadata.resourceVersion || this.revision;
  }
}

export function keyOf(metadata) {
  return `${metadata.namespace || ""}/${metadata.name}`;
}

/** Keeps collections as they are on the server until it is stopped. */
export class Live {
  constructor(collections, { changed, state }) {
    Object.assign(this, { collections, changed, state });
    this.abort = new AbortController();
    this.pause = FIRST_PAUSE;
  }

  stop() {
    this.abort.abort();
    this.wake?.();
  }

  get stopped() {
    return this.abort.signal.aborted;
  }

  async run() {
    while (!this.stopped) {
      const begun = performance.now();
      let why = "the connection ended";
      try {
        const unlisted = this.collections.filter((each) => !each.revision && !each.refused);
        await Promise.all(unlisted.map((each) => this.list(each)));
        if (!this.collections.some((each) => !each.refused)) return this.state("refused", this.collections[0].refused);
        await this.watch();
      } catch (error) {
        if (this.stopped) return;
        why = error.message;
      }
      if (this.stopped) return;
      if (whyOver()) return this.state("ended", whyOver());
      // Watches end by themselves after some minutes: a stream that was steady is opened again at once.
      if (performance.now() - begun > STEADY) this.pause = FIRST_PAUSE;
      else this.state("lost", why);
      await this.rest();
    }
  }

  async rest() {
    const length = this.pause * (0.5 + Math.random() / 2);
    this.pause = Math.min(this.pause * 2, LONGEST_PAUSE);
    await new Promise((resolve) => {
      this.wake = resolve;
      setTimeout(resolve, length);
    });
  }

  async list(collection) {
    const found = new Map();
    let token = "";
    try {
      do {
        const page = await this.page(collection, token);
        for (const each of page.items || []) found.set(keyOf(each.metadata), collection.keep(each));
        token = page.metadata?.continue || "";
        if (!collection.listed) {
          collection.items = found; // what is there of the first list is shown while the rest comes
          this.changed(collection);
        }
        collection.nextRevision = page.metadata?.resourceVersion || "0";
        collection.more = Boolean(token) && found.size >= collection.most;
      } while (token && !collection.more);
    } catch (error) {
      // 400: a selector that the server does not accept; 404: a kind that the server does not have.
      if (![400, 403, 404].includes(error.status) && error.reason !== TOO_LONG) throw error;
      collection.refused = error.message;
      this.changed(collection);
      return;
    }
    collection.history?.replace(collection.name, collection.items, found, Date.now());
    collection.items = found;
    collection.listed = true;
    collection.revision = collection.nextRevision;
    this.changed(collection);
  }

  /** Return a part of a list, of as many objects as one answer can have: those of others may be large. */
  async page(collection, token) {
    for (let size = 0; ; size += 1) {
      try {
        return await getJson(collection.path, { ...collection.query, limit: String(PAGES[size]), continue: token }, this.abort.signal);
      } catch (error) {
        if (error.reason !== TOO_LONG || size === PAGES.length - 1) throw error;
      }
    }
  }

  async watch() {
    const watched = this.collections.filter((each) => !each.refused);
    const query = new URLSearchParams();
    for (const each of watched) {
      query.append("w", `${each.path}?${new URLSearchParams({ ...each.query, resourceVersion: each.revision })}`);
    }
    const answer = await get("/watch", query, this.abort.signal);
    this.state("live", "");
    let rest = "";
    for await (const text of texts(answer)) {
      const lines = (rest + text).split("\n");
      rest = lines.pop();
      for (const line of lines) {
        const { w, event, error, ended } = JSON.parse(line);
        if (ended) return end(ENDED, { forget: true });
        this.take(watched[w], event, error);
      }
    }
  }

  take(collection, event, error) {
    try {
      if (error) throw new ApiError(error.code, error.message, error.reason);
      if (!event) return;
      collection.apply(event);
      this.changed(collection);
    } catch (failure) {
      // What happened since is not known any more (410), or only from the whole list.
      if (failure.status !== 503) collection.revision = "";
      if (failure.status === 403) collection.refused = failure.message;
      throw failure;
    }
  }
}
