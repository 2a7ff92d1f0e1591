// Nodes and workloads as the page stores them, each with its state as pods have it (pods.js).

import { cut } from "./pods.js";
import { number } from "./quantity.js";

const LATE = 30000;
const PRESSURES = ["MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"];

function common(kind, object) {
  const { metadata } = object;
  return {
    kind,
    namespace: metadata.namespace || "",
    name: metadata.name,
    uid: metadata.uid,
    created: Date.parse(metadata.creationTimestamp) || 0,
    text: `${metadata.namespace || ""} ${metadata.name} ${kind}`.toLowerCase(),
  };
}

/** Return what is stored of a node. */
export function node(object) {
  const { spec = {}, status = {} } = object;
  const conditions = status.conditions || [];
  const ready = conditions.find((each) => each.type === "Ready");
  const pressure = conditions.find((each) => PRESSURES.includes(each.type) && each.status === "True");
  let state = { level: "ok", word: "Ready", detail: "" };
  if (ready?.status !== "True")
    state = { level: "bad", word: "NotReady", detail: cut(ready?.message || "the agent has not reported its status") };
  else if (pressure) state = { level: "bad", word: pressure.type, detail: cut(pressure.message) };
  else if (spec.unschedulable) state = { level: "end", word: "Cordoned", detail: "" };
  const size = status.allocatable || status.capacity || {};
  return { ...common("Node", object), state, cpu: number(size.cpu), memory: number(size.memory), pods: number(size.pods) };
}

function workload(kind, object, desired, ready, failure) {
  const state = { level: "ok", word: "Ready", detail: "" };
  if (failure) Object.assign(state, { level: "bad", word: failure.reason || failure.type, detail: cut(failure.message) });
  else if (ready < desired) Object.assign(state, { level: "wait", word: "NotReady", detail: `${ready} of ${desired} are ready` });
  return { ...common(kind, object), desired, ready, state };
}

function condition(object, type, status) {
  return (object.status?.conditions || []).find((each) => each.type === type && each.status === status);
}

/** Return a label selector as the API's query has it. */
export function selectorText({ matchLabels = {}, matchExpressions = [] } = {}) {
  const values = (each) => `(${(each.values || []).join(",")})`;
  const words = {
    In: (each) => `${each.key} in ${values(each)}`,
    NotIn: (each) => `${each.key} notin ${values(each)}`,
    Exists: (each) => each.key,
    DoesNotExist: (each) => `!${each.key}`,
  };
  const labels = Object.entries(matchLabels).map(([name, value]) => `${name}=${value}`);
  return [...labels, ...matchExpressions.filter((each) => words[each.operator]).map((each) => words[each.operator](each))].join(",");
}

export function deployment(object) {
  const failure = condition(object, "ReplicaFailure", "True") || condition(object, "Progressing", "False");
  const found = workload("Deployment", object, object.spec?.replicas ?? 1, object.status?.readyReplicas || 0, failure);
  const unavailable = condition(object, "Available", "False");
  found.selector = selectorText(object.spec?.selector);
  if (found.state.level === "wait" && unavailable) found.state.late = (Date.parse(unavailable.lastTransitionTime) || found.created) + LATE;
  return found;
}

export function statefulSet(object) {
  const found = workload("StatefulSet", object, object.spec?.replicas ?? 1, object.status?.readyReplicas || 0, null);
  if (found.state.level === "wait") found.state.late = found.created + 2 * LATE;
  return found;
}

export function daemonSet(object) {
  const found = workload("DaemonSet", object, object.status?.desiredNumberScheduled || 0, object.status?.numberReady || 0, null);
  if (found.state.level === "wait") found.state.late = found.created + 2 * LATE;
  return found;
}

export function job(object) {
  const { spec = {}, status = {} } = object;
  const found = workload("Job", object, spec.completions ?? 1, status.succeeded || 0, condition(object, "Failed", "True"));
  if (found.state.level === "bad") return found;
  if (condition(object, "Complete", "True")) found.state = { level: "done", word: "Complete", detail: "" };
  else if (spec.suspend) found.state = { level: "end", word: "Suspended", detail: "" };
  else found.state = { level: "wait", word: "Running", detail: "" };
  return found;
}

/** Return what is stored of a namespace. */
export function namespace(object) {
  return common("Namespace", object);
}
