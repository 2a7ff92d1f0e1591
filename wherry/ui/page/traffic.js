// A Service drawn: addresses, ports, endpoints with their pods, and what policies stop between them.

import { getJson } from "./api.js";
import { box, line, picture } from "./diagram.js";
import { copyButton, el } from "./dom.js";
import { following } from "./following.js";
import { Collection } from "./live.js";

const ROW = 52;
const HEIGHT = 40;
const COLUMNS = [
  { x: 4, width: 200 },
  { x: 264, width: 170 },
  { x: 494, width: 242 },
];
const WIDTH = 740;
const PAUSE = 500;

/** Return an element that draws a Service anew when it, its EndpointSlices or a policy of its namespace has changed. */
export function traffic({ namespace, name }) {
  const inside = `/namespaces/${encodeURIComponent(namespace)}`;
  const nothing = () => true;
  const collections = [
    new Collection("services", `/api/v1${inside}/services`, nothing, { fieldSelector: `metadata.name=${name}` }),
    new Collection("endpointslices", `/apis/discovery.k8s.io/v1${inside}/endpointslices`, nothing, {
      labelSelector: `kubernetes.io/service-name=${name}`,
    }),
    new Collection("networkpolicies", `/apis/networking.k8s.io/v1${inside}/networkpolicies`, nothing),
  ];
  const content = el("div", { class: "traffic", "aria-busy": "true" });
  const reader = new Repeated(
    () => getJson("/traffic", { namespace, name }),
    (found) => content.replaceChildren(...parts(found, namespace, name)),
    content,
  );
  const place = following(collections, content, () => {
    reader.request();
    return "";
  });
  const close = place.close;
  place.close = () => {
    reader.stop();
    close();
  };
  return place;
}

// Reads again after a change, one read at a time, with a pause between them.
class Repeated {
  constructor(read, show, content) {
    Object.assign(this, { read, show, content, wanted: false, running: false, stopped: false });
  }

  stop() {
    this.stopped = true;
  }

  async request() {
    this.wanted = true;
    if (this.running) return;
    this.running = true;
    while (this.wanted && !this.stopped) {
      this.wanted = false;
      try {
        const found = await this.read();
        if (!this.stopped) this.show(found);
      } catch (error) {
        this.content.replaceChildren(el("p", { class: "failure" }, error.message));
      }
      this.content.removeAttribute("aria-busy");
      await new Promise((resolve) => setTimeout(resolve, PAUSE));
    }
    this.running = false;
  }
}

function parts(found, namespace, name) {
  const { endpoints, ports } = found.hidden;
  const hidden = [endpoints && `${endpoints} more endpoints`, ports && `${ports} more ports`].filter(Boolean).join(" and ");
  return [
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Picture of the Service" }, draw(found, namespace, name)),
    hidden ? el("p", { class: "hint" }, `${hidden} are not shown`) : null,
    found.causes.length
      ? el("ul", { class: "causes" }, found.causes.map(cause))
      : el("p", {}, "Nothing that the cluster's objects show stops connections."),
    ...found.unknown.map((each) => el("p", { class: "unknown" }, `not known: ${each}`)),
  ].filter(Boolean);
}

function cause({ text, fix, partial }) {
  const item = el("li", { class: partial ? "partial" : null }, el("p", {}, text));
  if (fix) item.append(el("p", { class: "fix" }, el("code", {}, fix), " ", copyButton(fix, partial ? "Copy the command" : "Copy the fix")));
  return item;
}

function draw({ addresses, ports, endpoints }, namespace, name) {
  const place = (column, index) => ({ ...COLUMNS[column], y: 4 + index * ROW, height: HEIGHT });
  const rows = Math.max(addresses.length, ports.length, endpoints.length, 1);
  const lines = [];
  const boxes = [];
  addresses.forEach(({ text, what }, index) => {
    boxes.push(box({ ...place(0, index), lines: [text || "no address yet", what] }));
    ports.forEach((port, to) => {
      const of = what === "node ports" ? Boolean(port.nodePort) : true;
      if (of) lines.push(line(place(0, index), place(1, to), "open"));
    });
  });
  ports.forEach((port, index) => {
    const node = port.nodePort ? `, node port ${port.nodePort}` : "";
    boxes.push(
      box({
        ...place(1, index),
        lines: [`${port.name ? `${port.name} ` : ""}${port.port}/${port.protocol}${node}`, `to port ${port.target}`],
      }),
    );
  });
  endpoints.forEach((each, index) => {
    const kind = each.state === "ready" ? "ok" : each.state === "not ready" ? "wait" : "end";
    const where = [each.state, each.node && `on ${each.node}`].filter(Boolean).join(", ");
    const open = each.pod ? `Pod/${namespace}/${each.pod}` : "";
    const numbers = each.ports.map((port) => port.number).join(", ");
    const closed = each.ports.find((port) => port.state !== "open");
    const said = closed ? `${where}: ${closed.state === "closed" ? "closed by policies" : "open to some"}` : where;
    boxes.push(
      box({
        ...place(2, index),
        kind,
        open,
        lines: [`${each.pod || each.address}${numbers ? ` :${numbers}` : ""}`, said],
        title: [each.pod, each.address, said, closed?.why].filter(Boolean).join(", "),
      }),
    );
    for (const port of each.ports) {
      lines.push(line(place(1, port.of), place(2, index), each.state === "ready" ? port.state : "off", port.why || each.state));
    }
  });
  return picture(`Way of connections to Service ${name}`, WIDTH, rows * ROW, lines, boxes);
}
