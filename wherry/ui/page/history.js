// What the page has seen of its collections: their first lists, and the changes since, so that a former moment can be shown.
// The record has a size: others of the cluster decide how large an object is, and how often it changes.

const MOST_CHANGES = 50000;
const MOST_SIZE = 12e6; // characters of JSON: objects take about four bytes of memory for each
const KEPT = 0.9;
const OVERHEAD = 200;

export class History {
  constructor(mostSize = MOST_SIZE) {
    this.bases = new Map();
    this.changes = [];
    this.latest = new Map();
    this.mostSize = mostSize;
    this.size = 0;
    this.from = 0;
  }

  /** Record the whole of a collection, which was {before}. */
  replace(name, before, after, now) {
    if (!this.bases.has(name)) {
      this.bases.set(name, new Map(after));
      this.from = now;
      return;
    }
    for (const key of before.keys()) if (!after.has(key)) this.change(name, key, null, now);
    for (const [key, item] of after) if (!same(before.get(key), item)) this.change(name, key, item, now);
  }

  /** Record an object that was added or changed, or deleted (null); of several changes in a second the last one stays. */
  change(name, key, item, now) {
    const id = `${name} ${key}`;
    const size = (item === null ? 0 : JSON.stringify(item).length) + OVERHEAD;
    const last = this.latest.get(id);
    if (last && Math.floor(last.time / 1000) === Math.floor(now / 1000)) {
      this.size += size - last.size;
      Object.assign(last, { item, size });
    } else {
      const change = { id, time: now, name, key, item, size };
      this.changes.push(change);
      this.latest.set(id, change);
      this.size += size;
    }
    if (this.changes.length > MOST_CHANGES || this.size > this.mostSize) this.fold();
  }

  /** Fold the oldest changes into the first lists: moments before are not known any more. */
  fold() {
    let number = 0;
    while (number < this.changes.length && (this.changes.length - number > KEPT * MOST_CHANGES || this.size > KEPT * this.mostSize)) {
      const each = this.changes[number++];
      this.size -= each.size;
      if (this.latest.get(each.id) === each) this.latest.delete(each.id);
      apply(this.bases, each);
      this.from = Math.max(this.from, each.time);
    }
    this.changes.splice(0, number);
  }

  /** Return the collections as they were at a time; null if that is not known. */
  at(time) {
    if (!this.from || time < this.from) return null;
    const found = new Map([...this.bases].map(([name, items]) => [name, new Map(items)]));
    for (const each of this.changes) {
      if (each.time > time) break;
      apply(found, each);
    }
    return found;
  }
}

/** Return whether what is stored of an object is the same as before. */
export function same(before, after) {
  return Boolean(before && after) && JSON.stringify(before) === JSON.stringify(after);
}

function apply(collections, { name, key, item }) {
  const items = collections.get(name);
  if (item === null) items?.delete(key);
  else items?.set(key, item);
}
