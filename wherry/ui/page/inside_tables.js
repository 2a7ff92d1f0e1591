// Tables of the inside view: the numbers by verb, priority level, resource, queue and operation.

import { finite, WORKER } from "./inside_parts.js";
import { count, duration, perSecond } from "./samples.js";

const MOST_ROWS = 15;

function byKey(sample, family, columns) {
  const found = sample.keys(family).map((key) => [key, ...columns.map((each) => each((one) => one === key, key))]);
  return found.sort((a, b) => Number.parseFloat(b[1]) - Number.parseFloat(a[1]) || (a[0] < b[0] ? -1 : 1)).slice(0, MOST_ROWS);
}

export const TABLES = [
  {
    title: "Requests by verb",
    columns: ["Verb", "Rate", "All", "Mean time"],
    rows: ({ server }) =>
      byKey(server, "apiserver_request_total", [
        (only) => perSecond(server.rate("apiserver_request_total", only)),
        (only) => count(server.sum("apiserver_request_total", only)),
        (only, verb) => (finite(verb) ? duration(server.mean("apiserver_request_duration_seconds", only)) : "as long as it lasts"),
      ]),
  },
  {
    title: "Requests by priority level and flow schema (the API server does not count users)",
    columns: ["Level · flow schema", "Rate", "All"],
    rows: ({ server }) =>
      byKey(server, "apiserver_flowcontrol_dispatched_requests_total", [
        (only) => perSecond(server.rate("apiserver_flowcontrol_dispatched_requests_total", only)),
        (only) => count(server.sum("apiserver_flowcontrol_dispatched_requests_total", only)),
      ]),
  },
  {
    title: "Watch events by resource",
    columns: ["Resource", "Rate", "All"],
    rows: ({ server }) =>
      byKey(server, "apiserver_watch_events_total", [
        (only) => perSecond(server.rate("apiserver_watch_events_total", only)),
        (only) => count(server.sum("apiserver_watch_events_total", only)),
      ]),
  },
  {
    title: "Queues of controllers",
    columns: ["Queue", "Keys that wait", "Added", "Waited", "Work", "Longest now"],
    rows: ({ server }) =>
      byKey(server, "workqueue_depth", [
        (only) => count(server.sum("workqueue_depth", only)),
        (only) => perSecond(server.rate("workqueue_adds_total", only)),
        (only) => duration(server.mean("workqueue_queue_duration_seconds", only)),
        (only) => duration(server.mean("workqueue_work_duration_seconds", only)),
        (only) => duration(server.sum("workqueue_longest_running_processor_seconds", only)),
      ]),
  },
  {
    title: "Queues of the scheduler",
    columns: ["Queue", "Pods"],
    rows: ({ server }) => byKey(server, "scheduler_pending_pods", [(only) => count(server.sum("scheduler_pending_pods", only))]),
  },
  {
    title: "Store",
    columns: ["Operation", "Rate", "All", "Mean time"],
    rows: ({ server }) =>
      byKey(server, "etcd_requests_total", [
        (only) => perSecond(server.rate("etcd_requests_total", only)),
        (only) => count(server.sum("etcd_requests_total", only)),
        (only) => duration(server.mean("etcd_request_duration_seconds", only)),
      ]),
  },
  {
    title: "Pod workers of the agent",
    columns: ["Work", "All", "Mean time"],
    rows: ({ agent }) =>
      byKey(agent, `${WORKER}_count`, [(only) => count(agent.sum(`${WORKER}_count`, only)), (only) => duration(agent.mean(WORKER, only))]),
  },
];
