// The picture of the inside view: boxes, and flows between them with their numbers.

import { bytes } from "./quantity.js";
import { count, duration, perSecond, share } from "./samples.js";

export const WIDTH = 1000;
export const HEIGHT = 470;

const READS = ["GET", "LIST"];
export const finite = (verb) => !["WATCH", "CONNECT", "WATCHLIST"].includes(verb);
const reading = (key) => READS.includes(key);
const writing = (key) => ["create", "update", "delete"].includes(key);
const REQUEST = "apiserver_request_duration_seconds";
const SCHEDULED = "scheduler_scheduling_attempt_duration_seconds";
const SYNC = "kubeproxy_sync_proxy_rules_duration_seconds";
export const WORKER = "kubelet_pod_worker_duration_seconds";
const CALLS = "kubelet_runtime_operations_duration_seconds";

function process(sample) {
  const memory = sample.sum("process_resident_memory_bytes");
  return [`CPU ${share(sample.rate("process_cpu_seconds_total"))}, ${memory === null ? "–" : bytes(memory)}`];
}

const row = (y) => ({ y, height: 58 });
export const BOXES = [
  {
    name: "clients",
    title: "kubectl, programs",
    x: 5,
    width: 150,
    ...row(10),
    kind: "outside",
    lines: ({ server }) => [`${count(server.sum("apiserver_longrunning_requests"))} long requests`],
  },
  { name: "edge", part: "edge", title: "HTTP", x: 275, width: 130, ...row(10), lines: ({ server }) => process(server) },
  {
    name: "pipeline",
    part: "pipeline",
    title: "users, permissions",
    x: 510,
    width: 150,
    ...row(10),
    lines: ({ server }) => [`${perSecond(server.rate("authorization_attempts_total"))} decided`],
  },
  {
    name: "fairness",
    part: "fairness",
    title: "priority and fairness",
    x: 510,
    width: 150,
    ...row(110),
    lines: ({ server }) => [
      `${count(server.sum("apiserver_flowcontrol_current_executing_requests"))} run`,
      `${count(server.sum("apiserver_flowcontrol_current_inqueue_requests") ?? (server.there ? 0 : null))} wait`,
    ],
  },
  {
    name: "registry",
    part: "registry",
    title: "registry",
    x: 510,
    width: 150,
    ...row(230),
    lines: ({ server }) => [`${count(server.sum("apiserver_storage_objects"))} objects`],
  },
  {
    name: "admission",
    part: "admission",
    title: "admission",
    x: 275,
    width: 130,
    ...row(230),
    lines: ({ server }) => [duration(server.mean("apiserver_admission_step_admission_duration_seconds"))],
  },
  {
    name: "store",
    part: "store",
    title: "store",
    x: 510,
    width: 150,
    ...row(375),
    lines: ({ server }) => [
      `write ${duration(server.mean("etcd_request_duration_seconds", writing))}`,
      `fsync ${duration(server.mean("wherry_store_commit_duration_seconds"))}`,
    ],
  },
  {
    name: "cache",
    part: "cache",
    title: "watch cache",
    x: 275,
    width: 130,
    ...row(375),
    lines: ({ server }) => [`${count(server.sum("apiserver_longrunning_requests", (verb) => verb.startsWith("WATCH")))} watches`],
  },
  {
    name: "controllers",
    part: "queues",
    title: "controllers",
    x: 835,
    width: 160,
    ...row(10),
    lines: ({ server }) => [
      `${count(server.sum("workqueue_depth"))} keys wait`,
      `waited ${duration(server.mean("workqueue_queue_duration_seconds"))}`,
    ],
  },
  {
    name: "scheduler",
    part: "scheduler",
    title: "scheduler",
    x: 835,
    width: 160,
    ...row(120),
    lines: ({ server }) => [`${count(server.sum("scheduler_pending_pods"))} pods wait`, `attempt ${duration(server.mean(SCHEDULED))}`],
  },
  {
    name: "agent",
    part: "agent",
    title: "agent: pod workers",
    x: 5,
    width: 150,
    ...row(230),
    lines: ({ agent }) => [`${count(agent.sum("kubelet_running_pods"))} pods, sync ${duration(agent.mean(WORKER))}`, ...process(agent)],
  },
  {
    name: "runtime",
    part: "runtime",
    title: "containerd",
    x: 5,
    width: 150,
    ...row(110),
    kind: "outside",
    lines: ({ agent }) => [`call ${duration(agent.mean(CALLS))}`, `${count(agent.sum("wherry_runtime_calls_waiting"))} wait`],
  },
  {
    name: "proxy",
    part: "proxy",
    title: "proxy",
    x: 5,
    width: 150,
    ...row(375),
    lines: ({ proxy }) => [
      `sync ${duration(proxy.mean(SYNC))}`,
      `change to rules ${duration(proxy.mean("kubeproxy_network_programming_duration_seconds"))}`,
    ],
  },
  {
    name: "kernel",
    part: "rules",
    title: "kernel: rules",
    x: 835,
    width: 160,
    ...row(375),
    kind: "outside",
    lines: ({ proxy }) => [`${count(proxy.sum("kubeproxy_sync_proxy_rules_service_changes_pending"))} Services pending`],
  },
];

export const FLOWS = [
  {
    name: "requests",
    points: ["155,39", "275,39"],
    at: [215, 32],
    words: ({ server }) => perSecond(server.rate("apiserver_request_total"), "requests"),
  },
  {
    name: "parsed",
    points: ["405,39", "510,39"],
    at: [457, 32],
    words: ({ server }) => `${count(server.sum("apiserver_current_inflight_requests"))} in flight`,
  },
  {
    name: "queued",
    points: ["585,68", "585,110"],
    at: [592, 93],
    anchor: "start",
    words: ({ server }) => perSecond(server.rate("apiserver_flowcontrol_dispatched_requests_total")),
  },
  {
    name: "handled",
    points: ["585,168", "585,230"],
    at: [592, 203],
    anchor: "start",
    words: ({ server }) => [perSecond(server.rate("apiserver_request_total", finite)), duration(server.mean(REQUEST, finite))].join(", "),
  },
  {
    name: "admitted",
    points: ["510,259", "405,259"],
    at: [457, 252],
    both: true,
    words: ({ server }) => perSecond(server.rate("apiserver_admission_step_admission_duration_seconds_count"), "steps"),
  },
  {
    name: "written",
    points: ["585,288", "585,375"],
    at: [592, 335],
    anchor: "start",
    words: ({ server }) => perSecond(server.rate("etcd_requests_total", writing), "writes"),
  },
  {
    name: "published",
    points: ["510,404", "405,404"],
    at: [457, 397],
    words: ({ server }) => perSecond(server.rate("etcd_requests_total", writing), "events"),
  },
  {
    name: "read",
    points: ["510,275", "460,275", "460,340", "340,340", "340,375"],
    at: [400, 334],
    both: true,
    words: ({ server }) => perSecond(server.rate("apiserver_request_total", reading), "reads"),
  },
  {
    name: "watched",
    points: ["275,395", "215,395", "215,265", "155,265"],
    at: [210, 320],
    words: ({ server }) => `${perSecond(server.rate("apiserver_watch_events_total"))} sent`,
  },
  { name: "followed", points: ["275,412", "155,412"], at: [215, 426], words: () => "watch" },
  {
    name: "started",
    points: ["80,230", "80,168"],
    at: [87, 203],
    anchor: "start",
    words: ({ agent }) => perSecond(agent.rate("kubelet_runtime_operations_total"), "calls"),
  },
  { name: "reported", points: ["155,240", "190,240", "190,52", "275,52"], at: [195, 150], anchor: "start", words: () => "status, lease" },
  {
    name: "reconciled",
    points: ["835,39", "660,39"],
    at: [747, 32],
    both: true,
    words: ({ server }) => perSecond(server.rate("workqueue_adds_total"), "keys"),
  },
  {
    name: "bound",
    points: ["835,149", "740,149", "740,52", "660,52"],
    at: [747, 165],
    both: true,
    words: ({ server }) => perSecond(server.rate("scheduler_schedule_attempts_total"), "attempts"),
  },
  {
    name: "programmed",
    points: ["80,433", "80,458", "915,458", "915,433"],
    at: [497, 452],
    words: ({ proxy }) => perSecond(proxy.rate(`${SYNC}_count`), "syncs"),
  },
];
