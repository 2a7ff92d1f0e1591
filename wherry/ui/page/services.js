// Services as the page stores them: the endpoints of each are counted from its EndpointSlices.

import { cut } from "./pods.js";

const LATE = 30000;
const LONGEST = 500;
const unready = new Map(); // Services without ready endpoints, by UID, with the time since which the page knows it

/** Return what is stored of a Service. */
export function service({ metadata, spec = {}, status = {} }) {
  const own = (spec.clusterIPs || [spec.clusterIP]).filter((each) => each && each !== "None");
  const outside = (status.loadBalancer?.ingress || []).map((each) => each.ip || each.hostname);
  const address = cut(
    [
      ...(spec.type === "ExternalName" ? [spec.externalName] : own.length ? own : ["headless"]),
      ...(spec.externalIPs || []),
      ...outside,
    ].join(", "),
    LONGEST,
  );
  const ports = cut(
    (spec.ports || []).map((each) => `${each.port}${each.nodePort ? `:${each.nodePort}` : ""}/${each.protocol || "TCP"}`).join(", "),
    LONGEST,
  );
  return {
    kind: "Service",
    namespace: metadata.namespace,
    name: metadata.name,
    uid: metadata.uid,
    created: Date.parse(metadata.creationTimestamp) || 0,
    type: spec.type || "ClusterIP",
    selects: Boolean(Object.keys(spec.selector || {}).length),
    publishes: Boolean(spec.publishNotReadyAddresses),
    address,
    ports,
    text: `${metadata.namespace} ${metadata.name} Service ${address} ${ports}`.toLowerCase(),
  };
}

/** Return what is stored of an EndpointSlice. */
export function slice({ metadata, endpoints = [] }) {
  const ready = endpoints.filter((each) => each.conditions?.ready !== false);
  return {
    namespace: metadata.namespace,
    service: metadata.labels?.["kubernetes.io/service-name"] || "",
    ready: ready.length,
    all: endpoints.length,
  };
}

/** Return what is stored of a network policy: its namespace has one. */
export function policy({ metadata }) {
  return { namespace: metadata.namespace, revision: metadata.resourceVersion };
}

/**
 * Return Services with their endpoints, their state, and what policies stop (`stopped` by namespace and name).
 * `since` has the times from which Services have no ready endpoint.
 */
export function withEndpoints(services, slices, stopped, known, now, since = unready) {
  const counts = new Map();
  for (const { namespace, service: name, ready, all } of slices) {
    const found = counts.get(`${namespace}/${name}`) || { ready: 0, all: 0 };
    counts.set(`${namespace}/${name}`, { ready: found.ready + ready, all: found.all + all });
  }
  const there = new Set(services.map((each) => each.uid));
  for (const uid of since.keys()) if (!there.has(uid)) since.delete(uid);
  return services.map((each) => {
    const { ready, all } = counts.get(`${each.namespace}/${each.name}`) || { ready: 0, all: 0 };
    if (ready) since.delete(each.uid);
    else if (!since.has(each.uid)) since.set(each.uid, now);
    return {
      ...each,
      ready,
      all,
      state: stateOf(each, ready, all, stopped.get(each.namespace)?.[each.name]?.[0], known, since.get(each.uid)),
    };
  });
}

function stateOf(service, ready, all, cause, known, since) {
  if (cause && !cause.partial) return { level: "bad", word: "Closed", detail: cause.text };
  if (service.type === "ExternalName") return { level: "ok", word: "Elsewhere", detail: "" };
  if (!known) return { level: "wait", word: "Endpoints not known", detail: "" };
  if (!ready && service.selects) {
    // Pods of it that start are no fault yet.
    const late = since + LATE;
    return { level: "wait", word: "NoEndpoints", detail: all ? `none of its ${all} endpoints is ready` : "no pod is behind it", late };
  }
  if (!ready) return { level: "wait", word: "NoEndpoints", detail: "no EndpointSlice has a ready address for it" };
  if (cause) return { level: "ok", word: "Limited", detail: cause.text };
  return { level: "ok", word: "Ready", detail: "" };
}
