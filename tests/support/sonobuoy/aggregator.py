"""Aggregator of Sonobuoy's plugin protocol: starts plugins, receives their workers' results, and archives them.

It runs in a pod with a service account, creates a Secret and a pod (driver Job) or DaemonSet for each definition in /plugins.d,
owned by its own pod, and serves workers over TLS with client certificates of a CA of this run. The state is an annotation
of its own pod, as `sonobuoy status` reads it. Runs in pods: only the standard library and `cryptography` are imported.
"""

from __future__ import annotations

import base64
import http.server
import io
import json
import os
import re
import ssl
import tarfile
import threading
import time
import uuid
from pathlib import Path
from typing import Any

from tests.support.sonobuoy.certificates import Authority
from tests.support.sonobuoy.in_cluster import NAMESPACE, call, pod_path

OUTPUT = Path("/tmp/sonobuoy")
RESULTS = "/tmp/sonobuoy/results"
PORT = 8080
STATUS = "sonobuoy.hept.io/status"
GLOBAL = "global"
HOST = "host-"
"""Beginning of the names of volumes with Python and these programs."""
namespace, own_name = os.environ[NAMESPACE], os.environ["SONOBUOY_POD"]
run = uuid.uuid4().hex[:16]
URL = f"https://{os.environ['SONOBUOY_ADVERTISE_IP']}:{PORT}"


class State:
    """Expected and received results; `publish` writes them into the annotation."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.expected: set[tuple[str, str]] = set()
        self.received: set[tuple[str, str]] = set()
        self.progress: dict[tuple[str, str], Any] = {}

    def receive(self, key: tuple[str, str], file: str, data: bytes) -> int:
        """Store a result and return the status of the response."""
        with self.lock:
            if key not in self.expected:
                return 403
            if key in self.received:
                return 409
            folder = OUTPUT / "plugins" / key[0] / "results" / key[1]
            folder.mkdir(parents=True, exist_ok=True)
            if not file.endswith(".tar.gz"):
                (folder / file).write_bytes(data)
            else:
                with tarfile.open(fileobj=io.BytesIO(data)) as tar:
                    for each in tar.getmembers():
                        if content := tar.extractfile(each):
                            (folder / Path(each.name).name).write_bytes(content.read())
            self.received.add(key)
            return 200

    def publish(self, status: str) -> None:
        plugins = [
            {
                "plugin": key[0],
                "node": key[1],
                "status": "complete" if key in self.received else "running",
                "progress": self.progress.get(key),
            }
            for key in sorted(self.expected)
        ]
        value = json.dumps({"plugins": plugins, "status": status})
        body = {"metadata": {"annotations": {STATUS: value}}}
        call("PATCH", pod_path(namespace, own_name), body, "application/merge-patch+json")


state = State()


class Handler(http.server.BaseHTTPRequestHandler):
    """Receives results (PUT) and reports of progress (POST)."""

    _PATH = re.compile(r"/api/v1/(results|progress)/(?:global|by-node/([^/]+))/([^/]+)")

    def do_PUT(self) -> None:
        self._answer("results")

    def do_POST(self) -> None:
        self._answer("progress")

    def _answer(self, wanted: str) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        found = self._PATH.fullmatch(self.path)
        status = 404
        if found and found[1] == wanted:
            key = (found[3], found[2] or GLOBAL)
            if wanted == "results":
                name = re.search(r"filename=([\w.-]+)", self.headers.get("Content-Disposition", ""))
                status = state.receive(key, name[1] if name else "result", body)
            else:
                state.progress[key] = json.loads(body)
                status = 200
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()


def worker(definition: dict[str, Any], secret: str, authority: Authority) -> dict[str, Any]:
    """Return the container of the worker: the aggregator's image and programs, and the environment of the protocol."""
    name = definition["sonobuoy-config"]["plugin-name"]
    own = call("GET", pod_path(namespace, own_name))["spec"]["containers"][0]
    mounts = [each for each in own["volumeMounts"] if each["name"].startswith(HOST)]
    fields = {"NODE_NAME": "spec.nodeName", NAMESPACE: "metadata.namespace", "SONOBUOY_PLUGIN_POD": "metadata.name"}
    keys = {"CLIENT_CERT": "tls.crt", "CLIENT_KEY": "tls.key"}
    values = {
        "SONOBUOY_RESULTS_DIR": RESULTS,
        "RESULT_TYPE": name,
        "AGGREGATOR_URL": URL,
        "CA_CERT": authority.pem,
        "SONOBUOY_PROGRESS_PORT": "8099",
        "SONOBUOY_WORKER_CONTAINER": "sonobuoy-worker",
        "PYTHONPATH": os.environ["PYTHONPATH"],
    }
    env: list[dict[str, Any]] = [{"name": key, "value": value} for key, value in values.items()]
    env += [{"name": key, "valueFrom": {"fieldRef": {"fieldPath": path}}} for key, path in fields.items()]
    env += [{"name": key, "valueFrom": {"secretKeyRef": {"name": secret, "key": k}}} for key, k in keys.items()]
    kind = "global" if definition["sonobuoy-config"]["driver"] == "Job" else "single-node"
    return {
        "name": "sonobuoy-worker",
        "image": own["image"],
        "command": [own["command"][0], "-m", "tests.support.sonobuoy.worker", kind],
        "env": env,
        "volumeMounts": [*mounts, {"name": "results", "mountPath": RESULTS}],
    }


def start(definition: dict[str, Any], authority: Authority, owner: dict[str, Any]) -> None:
    """Create the Secret of a plugin, and its pod or DaemonSet."""
    header = definition["sonobuoy-config"]
    name, driver = header["plugin-name"], header["driver"]
    labels = {"component": "sonobuoy", "sonobuoy-plugin": name, "sonobuoy-run": run}
    owned = {"namespace": namespace, "labels": labels, "ownerReferences": [owner]}
    secret = f"sonobuoy-plugin-{name}-{run}"
    data = {key: base64.b64encode(text.encode()).decode() for key, text in authority.issue(name).items()}
    body = {"metadata": {**owned, "name": secret}, "type": "kubernetes.io/tls", "data": data}
    call("POST", f"/api/v1/namespaces/{namespace}/secrets", body)

    plugin = definition["spec"]
    plugin.setdefault("env", []).append({"name": "SONOBUOY_PROGRESS_PORT", "value": "8099"})
    volumes = call("GET", pod_path(namespace, own_name))["spec"]["volumes"]
    spec = {
        "serviceAccountName": os.environ["SERVICE_ACCOUNT"],
        "terminationGracePeriodSeconds": 0,
        "tolerations": [{"operator": "Exists"}],
        "containers": [plugin, worker(definition, secret, authority)],
        "volumes": [*(each for each in volumes if each["name"].startswith(HOST)), {"name": "results", "emptyDir": {}}],
    }
    if driver == "Job":
        body = {"metadata": {**owned, "name": f"sonobuoy-{name}-job-{run}"}, "spec": {**spec, "restartPolicy": "Never"}}
        call("POST", f"/api/v1/namespaces/{namespace}/pods", body)
        state.expected.add((name, GLOBAL))
        return
    template = {"metadata": {"labels": labels}, "spec": spec}
    body = {
        "metadata": {**owned, "name": f"sonobuoy-{name}-daemon-set-{run}"},
        "spec": {"selector": {"matchLabels": {"sonobuoy-run": run, "sonobuoy-plugin": name}}, "template": template},
    }
    call("POST", f"/apis/apps/v1/namespaces/{namespace}/daemonsets", body)
    nodes = call("GET", "/api/v1/nodes")["items"]
    state.expected |= {(name, node["metadata"]["name"]) for node in nodes}


def main() -> None:
    authority = Authority()
    server = http.server.ThreadingHTTPServer(("", PORT), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=authority.pem)
    context.load_cert_chain(*authority.files(OUTPUT, os.environ["SONOBUOY_ADVERTISE_IP"]))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    pod = call("GET", pod_path(namespace, own_name))["metadata"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod["name"], "uid": pod["uid"]}
    with state.lock:
        for file in sorted(Path("/plugins.d").glob("*.yaml")):
            start(json.loads(file.read_text()), authority, owner)
    while state.received != state.expected:
        state.publish("running")
        time.sleep(1)
    state.publish("post-processing")
    with tarfile.open(OUTPUT / "results.tar.gz", "w:gz") as tar:
        tar.add(OUTPUT / "plugins", arcname="plugins")
    path = f"/api/v1/namespaces/{namespace}/pods?labelSelector=sonobuoy-run%3D{run}"
    call("DELETE", path.replace("/api/v1", "/apis/apps/v1").replace("/pods", "/daemonsets"))
    call("DELETE", path)
    state.publish("complete")
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    main()
