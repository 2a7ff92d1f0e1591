// The collections that the page follows.

import { Collection } from "./live.js";
import * as objects from "./objects.js";
import { summary } from "./pods.js";
import { policy, service, slice } from "./services.js";

const MOST_PODS = 20000;

/** Return the collections of a namespace, or of all (""), with the objects that a label selector selects. */
export function collections({ namespace, labels }) {
  const inside = namespace ? `/namespaces/${namespace}` : "";
  const query = labels ? { labelSelector: labels } : {};
  return [
    new Collection("nodes", "/api/v1/nodes", objects.node),
    new Collection("namespaces", "/api/v1/namespaces", objects.namespace),
    new Collection("pods", `/api/v1${inside}/pods`, summary, query, MOST_PODS),
    new Collection("deployments", `/apis/apps/v1${inside}/deployments`, objects.deployment, query),
    new Collection("statefulsets", `/apis/apps/v1${inside}/statefulsets`, objects.statefulSet, query),
    new Collection("daemonsets", `/apis/apps/v1${inside}/daemonsets`, objects.daemonSet, query),
    new Collection("jobs", `/apis/batch/v1${inside}/jobs`, objects.job, query),
    new Collection("services", `/api/v1${inside}/services`, service, query),
    new Collection("endpointslices", `/apis/discovery.k8s.io/v1${inside}/endpointslices`, slice),
    new Collection("networkpolicies", `/apis/networking.k8s.io/v1${inside}/networkpolicies`, policy),
  ];
}
