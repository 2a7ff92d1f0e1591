// Pods as the page stores them: what is shown of each, and its state.

import { number } from "./quantity.js";

const STARTING = new Set(["ContainerCreating", "PodInitializing"]);
const LATE_START = 60000;
const LATE_READY = 10000;
const MANY_RESTARTS = 3;
const LOOP = 300000;
const MOST_CONTAINERS = 50;
const LONGEST = 4096;
const LONGEST_WORD = 512;

/** Return what is stored of a pod. */
export function summary(pod) {
  const { metadata, spec = {}, status = {} } = pod;
  const owner = (metadata.ownerReferences || []).find((each) => each.controller);
  const byName = (statuses) => new Map((statuses || []).map((each) => [each.name, each]));
  const [initial, main] = [byName(status.initContainerStatuses), byName(status.containerStatuses)];
  const containers = [
    ...(spec.initContainers || []).map((each) => container(each, initial, true)),
    ...(spec.containers || []).map((each) => container(each, main, false)),
  ];
  const found = {
    kind: "Pod",
    namespace: metadata.namespace,
    name: metadata.name,
    uid: metadata.uid,
    node: spec.nodeName || "",
    address: status.podIP || "",
    owner: owner ? { kind: owner.kind, name: owner.name, uid: owner.uid } : null,
    created: Date.parse(metadata.creationTimestamp) || 0,
    more: Math.max(0, containers.length - MOST_CONTAINERS),
    finished: status.phase === "Succeeded" || status.phase === "Failed",
    cpu: requests(spec, "cpu"),
    memory: requests(spec, "memory"),
  };
  found.state = stateOf(metadata, status, containers, found.created);
  found.containers = containers.slice(0, MOST_CONTAINERS).map((each) => ({ ...each, message: cut(each.message, LONGEST_WORD) }));
  found.text = [
    metadata.namespace,
    metadata.name,
    found.node,
    found.address,
    found.state.word,
    ...found.containers.map((each) => each.image),
  ]
    .join(" ")
    .toLowerCase();
  return found;
}

function container(spec, statuses, init) {
  const status = statuses.get(spec.name) || {};
  const [state, detail] = Object.entries(status.state || {})[0] || ["waiting", {}];
  const sidecar = init && spec.restartPolicy === "Always";
  return {
    name: spec.name,
    image: cut(spec.image, LONGEST_WORD),
    init,
    sidecar,
    ready: Boolean(status.ready),
    restarts: status.restartCount || 0,
    state,
    reason: cut(detail?.reason, LONGEST_WORD),
    message: cut(detail?.message),
    exit: detail?.exitCode,
    failed: status.lastState?.terminated?.exitCode ? Date.parse(status.lastState.terminated.finishedAt) || 0 : 0,
  };
}

/** Return a text of the cluster, cut if it is long. */
export function cut(value, longest = LONGEST) {
  const found = String(value || "");
  return found.length > longest ? `${found.slice(0, longest)}…` : found;
}

// The larger of what the containers request together and what each init container does beside the sidecars before it.
function requests(spec, name) {
  const of = (each) => number(each.resources?.requests?.[name]);
  const overhead = number(spec.overhead?.[name]);
  const whole = spec.resources?.requests?.[name];
  if (whole !== undefined) return number(whole) + overhead;
  let sidecars = 0;
  let peak = 0;
  for (const each of spec.initContainers || []) {
    if (each.restartPolicy === "Always") sidecars += of(each);
    peak = Math.max(peak, each.restartPolicy === "Always" ? sidecars : sidecars + of(each));
  }
  const running = (spec.containers || []).reduce((sum, each) => sum + of(each), sidecars);
  return Math.max(running, peak) + overhead;
}

// `level` is ok, wait, bad, done or end; a state is bad from the time `late` on, and until the time `until`.
function stateOf(metadata, status, containers, created) {
  const condition = (type) => (status.conditions || []).find((each) => each.type === type);
  if (metadata.deletionTimestamp) {
    const late = Date.parse(metadata.deletionTimestamp) + LATE_START;
    return { level: "end", word: "Terminating", detail: "", late };
  }
  if (status.phase === "Succeeded") return { level: "done", word: "Succeeded", detail: "" };
  if (status.phase === "Failed") return { level: "bad", word: status.reason || "Failed", detail: cut(status.message) };
  const scheduled = condition("PodScheduled");
  if (scheduled?.status === "False") {
    const bad = scheduled.reason === "Unschedulable";
    return { level: bad ? "bad" : "wait", word: scheduled.reason || "Pending", detail: cut(scheduled.message), late: created + LATE_START };
  }
  return stateOfContainers(containers) || stateOfRunning(status, condition("Ready"), containers, created);
}

function stateOfContainers(containers) {
  const failing = containers.find((each) => each.state === "waiting" && each.reason && !STARTING.has(each.reason));
  if (failing) return { level: "bad", word: failing.reason, detail: failing.message };
  const exited = containers.find((each) => each.state === "terminated" && each.exit && (!each.init || each.sidecar));
  if (exited) return { level: "bad", word: exited.reason || "Error", detail: `${exited.name}: exit code ${exited.exit}` };
  return null;
}

function stateOfRunning(status, ready, containers, created) {
  const loop = containers.find((each) => each.failed && each.restarts >= MANY_RESTARTS);
  if (ready?.status === "True" && !loop) return { level: "ok", word: "Running", detail: "" };
  // Between two failures of a crash loop the pod runs: it is listed until the longest back-off would be over.
  if (ready?.status === "True") {
    return { level: "ok", word: "Restarted", detail: `${loop.name}: ${loop.restarts} restarts`, until: loop.failed + LOOP };
  }
  if (status.phase === "Running") {
    const late = (Date.parse(ready?.lastTransitionTime) || created) + LATE_READY;
    return { level: "wait", word: "NotReady", detail: cut(ready?.message), late };
  }
  return { level: "wait", word: status.phase || "Pending", detail: cut(status.message), late: created + LATE_START };
}

/** Return the level of a state at a time. */
export function level(state, now) {
  return (state.late && now > state.late) || (state.until && now < state.until) ? "bad" : state.level;
}
