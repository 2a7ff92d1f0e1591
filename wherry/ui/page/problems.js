// What is wrong, most important first: nodes, workloads, then pods; alike pods of one owner are one line.

import { level } from "./pods.js";

// States that follow each other for one cause: the line stays, and so does its story.
const FAMILIES = {
  ErrImagePull: "image",
  ImagePullBackOff: "image",
  CrashLoopBackOff: "crash",
  Error: "crash",
  OOMKilled: "crash",
  NotReady: "crash",
  Restarted: "crash",
};

/** Return the problems of nodes, workloads and pods, each {key, object, others}. */
export function problems(nodes, workloads, pods, now) {
  const found = [...nodes, ...workloads]
    .filter((each) => level(each.state, now) === "bad")
    .map((each) => ({ key: key(each), object: each, others: 0 }));
  const groups = new Map();
  for (const pod of pods) {
    if (level(pod.state, now) !== "bad") continue;
    const id = pod.owner ? `${pod.owner.uid} ${FAMILIES[pod.state.word] || pod.state.word}` : key(pod);
    const group = groups.get(id);
    if (group) group.others += 1;
    else groups.set(id, { key: id, object: pod, others: 0 });
  }
  return [...found, ...groups.values()];
}

export function key(object) {
  return `${object.kind}/${object.namespace}/${object.name}`;
}
