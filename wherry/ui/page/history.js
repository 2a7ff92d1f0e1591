// What the page has seen of its collections: their first lists, and the changes since, so that a former moment can be shown.

const MOST_CHANGES = 50000;
const FOLDED = 5000;

export class History {
  constructor() {
    this.bases = new Map();
    this.changes = [];
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
    for (const [key, item] of after) this.change(name, key, item, now);
  }

  /** Record an object that was added or changed, or deleted (null). */
  change(name, key, item, now) {
    this.changes.push({ time: now, name, key, item });
    if (this.changes.length <= MOST_CHANGES) return;
    const folded = this.changes.splice(0, FOLDED);
    for (const each of folded) apply(this.bases, each);
    this.from = Math.max(this.from, folded[folded.length - 1].time);
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

function apply(collections, { name, key, item }) {
  const items = collections.get(name);
  if (item === null) items?.delete(key);
  else items?.set(key, item);
}
