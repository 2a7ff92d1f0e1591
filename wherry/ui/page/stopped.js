// What network policies do to the Services of each namespace that has some: computed by the server of the page, after changes.

import { getJson } from "./api.js";

const PAUSE = 2000;
const MOST_NAMESPACES = 20;

export class Stopped {
  constructor(changed) {
    this.changed = changed;
    this.found = new Map();
    this.keys = new Map();
    this.hidden = 0;
    this.running = false;
  }

  /** Read the namespaces anew whose policies, or whose number of endpoints, have changed. */
  async follow(policies, slices) {
    this.latest = [policies, slices];
    if (this.running) return;
    this.running = true;
    while (this.latest) {
      const wanted = keysOf(...this.latest);
      this.latest = null;
      this.hidden = Math.max(0, wanted.size - MOST_NAMESPACES);
      for (const [namespace, key] of [...wanted].slice(0, MOST_NAMESPACES)) await this.read(namespace, key);
      for (const namespace of this.found.keys())
        if (!wanted.has(namespace) && this.found.delete(namespace) && this.keys.delete(namespace)) this.changed();
      await new Promise((resolve) => setTimeout(resolve, PAUSE));
    }
    this.running = false;
  }

  async read(namespace, key) {
    if (this.keys.get(namespace) === key) return;
    try {
      this.found.set(namespace, (await getJson("/stopped", { namespace })).services);
      this.keys.set(namespace, key);
      this.changed();
    } catch {
      this.keys.delete(namespace); // the connection's state says why; the next change tries again
    }
  }
}

function keysOf(policies, slices) {
  const found = new Map();
  for (const { namespace, revision } of policies) found.set(namespace, `${found.get(namespace) || ""} ${revision}`);
  for (const { namespace, service, all } of slices)
    if (found.has(namespace)) found.set(namespace, `${found.get(namespace)} ${service}:${all}`);
  return found;
}
