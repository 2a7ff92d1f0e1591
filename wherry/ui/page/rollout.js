// A Deployment's rollout as it happens: its conditions, and its ReplicaSets, each with its pods.

import { age, attribute, el, keyed, text } from "./dom.js";
import { following } from "./following.js";
import { Collection } from "./live.js";
import { moveFocus, showCells } from "./nodes_view.js";
import { summary } from "./pods.js";

const REVISION = "deployment.kubernetes.io/revision";
const MOST_SETS = 20;

/** Return an element that follows the rollout of a Deployment. */
export function rollout({ namespace, name, selector }) {
  if (selector === undefined) return el("p", {}, "reading…");
  const inside = `/namespaces/${encodeURIComponent(namespace)}`;
  const labels = selector ? { labelSelector: selector } : {};
  const deployment = new Collection("deployment", `/apis/apps/v1${inside}/deployments`, (each) => each, {
    fieldSelector: `metadata.name=${name}`,
  });
  const sets = new Collection("replicasets", `/apis/apps/v1${inside}/replicasets`, (each) => each, labels);
  const pods = new Collection("pods", `/api/v1${inside}/pods`, summary, labels);
  const parts = { progress: el("p", { class: "state" }), conditions: el("ul", { class: "conditions" }), sets: el("ul", { class: "sets" }) };
  const content = el("div", {}, parts.progress, parts.conditions, parts.sets);
  content.addEventListener("keydown", (event) => moveFocus(content, event));
  return following([deployment, sets, pods], content, () => {
    const [object] = deployment.items.values();
    if (!object) return deployment.listed ? "there is no such Deployment (any more)" : "";
    return show(parts, object, [...sets.items.values()], [...pods.items.values()]);
  });
}

function show(parts, object, sets, pods) {
  const now = Date.now();
  const own = sets.filter((each) => each.metadata.ownerReferences?.some((owner) => owner.uid === object.metadata.uid));
  own.sort((a, b) => revision(b) - revision(a));
  const byOwner = Map.groupBy(pods, (pod) => pod.owner?.uid);
  const used = own.filter((each, index) => index === 0 || each.spec.replicas || each.status?.replicas || byOwner.has(each.metadata.uid));
  text(parts.progress, progress(object, used));
  keyed(
    parts.conditions,
    object.status?.conditions || [],
    (each) => each.type,
    () => el("li"),
    (item, each) => {
      text(
        item,
        `${each.type} is ${each.status} for ${age(now - Date.parse(each.lastTransitionTime))}: ${each.reason || ""} ${each.message || ""}`,
      );
      item.className = (each.status === "True") === (each.type === "ReplicaFailure") ? "warning" : "";
    },
  );
  keyed(
    parts.sets,
    used.slice(0, MOST_SETS),
    (each) => each.metadata.uid,
    set,
    (item, each) => showSet(item, each, each === own[0], byOwner.get(each.metadata.uid) || [], now),
  );
  const empty = own.length - used.length;
  const hidden = used.length - MOST_SETS;
  return [
    empty ? `${empty} older ReplicaSets without pods: kubectl rollout undo goes back to one` : "",
    hidden > 0 ? `${hidden} ReplicaSets are not shown` : "",
  ]
    .filter(Boolean)
    .join(" · ");
}

/** Return in one sentence how far a rollout is. */
export function progress({ metadata, spec = {}, status = {} }, used) {
  const wanted = spec.replicas ?? 1;
  const updated = status.updatedReplicas || 0;
  const available = status.availableReplicas || 0;
  const counts = `${updated} of ${wanted} pods are of the new template, ${available} are available`;
  if ((status.observedGeneration || 0) < metadata.generation) return `Changed: the controller has not acted on it yet · ${counts}`;
  if (spec.paused) return `Paused: kubectl rollout resume continues · ${counts}`;
  const done = updated === wanted && available === wanted && (status.replicas || 0) === wanted && used.length <= 1;
  return done ? `Complete · ${counts}` : `Rolling out, ${steps(spec.strategy)} · ${counts}`;
}

function steps({ type, rollingUpdate } = {}) {
  if (type === "Recreate") return "old pods end before new ones start";
  return `at most ${rollingUpdate?.maxSurge ?? "25%"} more and ${rollingUpdate?.maxUnavailable ?? "25%"} fewer at a time`;
}

function revision(set) {
  return Number(set.metadata.annotations?.[REVISION]) || 0;
}

function set({ metadata }) {
  const parts = {
    word: el("span", { class: "badge" }),
    count: el("span", { class: "amount" }),
    images: el("p", { class: "hint" }),
    fill: el("span", { class: "fill" }),
    cells: el("div", { class: "cells", role: "group", "aria-label": `Pods of ${metadata.name}` }),
    more: el("p", { class: "hint" }),
  };
  parts.meter = el(
    "span",
    { class: "meter", role: "meter", "aria-label": `Ready pods of ${metadata.name}`, "aria-valuemin": "0", "aria-valuemax": "100" },
    parts.fill,
  );
  const item = el(
    "li",
    { class: "set" },
    el("h3", {}, metadata.name, " ", parts.word),
    parts.images,
    el("div", { class: "bar" }, el("span", {}, "Ready"), parts.meter, parts.count),
    parts.cells,
    parts.more,
  );
  item.parts = parts;
  return item;
}

function showSet(item, object, isNew, pods, now) {
  const { word, count, images, fill, meter, cells, more } = item.parts;
  const { spec = {}, status = {} } = object;
  const [ready, wanted, there] = [status.readyReplicas || 0, spec.replicas || 0, Math.max(status.replicas || 0, spec.replicas || 0)];
  const share = there ? Math.round((ready / there) * 100) : 0;
  text(word, `${isNew ? "new" : "old"}, revision ${revision(object) || "not set"}`);
  word.className = `badge ${isNew ? "ok" : "end"}`;
  text(images, (spec.template?.spec?.containers || []).map((each) => `${each.name}: ${each.image}`).join(", "));
  text(count, `${ready} ready, ${status.replicas || 0} there, ${wanted} wanted`);
  attribute(meter, "aria-valuenow", share);
  attribute(meter, "aria-valuetext", `${ready} of ${there}`);
  if (fill.share !== share) fill.style.width = `${(fill.share = share)}%`;
  pods.sort((a, b) => a.created - b.created || (a.name < b.name ? -1 : 1));
  showCells(cells, more, pods, now);
}
