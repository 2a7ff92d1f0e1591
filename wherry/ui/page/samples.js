// One reading of metrics, and the rates since the one before.

/** Metrics of one daemon: `found` has {at, values, own} or {why}; `former` is the reading before. */
export class Sample {
  constructor(found, former) {
    this.there = Boolean(found?.values);
    this.own = Boolean(found?.own);
    this.at = found?.at || 0;
    this.values = found?.values || {};
    this.former = this.there && former?.there && former.at < this.at ? former : null;
    this.seconds = this.former ? this.at - this.former.at : 0;
  }

  has(family) {
    return Object.hasOwn(this.values, family);
  }

  keys(family) {
    return Object.keys(this.values[family] || {});
  }

  /** Return the sum of a family, or of the keys that are accepted; null if it is not known. */
  sum(family, accept = () => true) {
    if (!this.has(family)) return null;
    return this.keys(family).reduce((total, key) => total + (accept(key) ? this.values[family][key] : 0), 0);
  }

  /** Return how much a counter has grown in a second; null if that is not known (yet), or if it began anew. */
  rate(family, accept) {
    const grown = this.grown(family, accept);
    return grown === null ? null : grown / this.seconds;
  }

  /** Return the mean of a histogram's observations since the reading before, in seconds; null if there were none. */
  mean(family, accept) {
    const count = this.grown(`${family}_count`, accept);
    const total = this.grown(`${family}_sum`, accept);
    return count && total !== null ? total / count : null;
  }

  grown(family, accept) {
    if (!this.former || !this.has(family)) return null;
    const grown = this.sum(family, accept) - (this.former.sum(family, accept) ?? 0);
    return grown < 0 ? null : grown;
  }
}

const NOTHING = "–";

export function perSecond(value, unit = "") {
  if (value === null) return NOTHING;
  return `${value >= 10 ? value.toFixed(0) : value.toFixed(1)}${unit ? ` ${unit}` : ""}/s`;
}

export function duration(seconds) {
  if (seconds === null || !Number.isFinite(seconds)) return NOTHING;
  if (seconds < 0.001) return `${(seconds * 1e6).toFixed(0)} µs`;
  return seconds < 1 ? `${(seconds * 1000).toFixed(1)} ms` : `${seconds.toFixed(1)} s`;
}

export function count(value) {
  return value === null ? NOTHING : String(Math.round(value));
}

export function share(value) {
  return value === null ? NOTHING : `${(value * 100).toFixed(0)} %`;
}
