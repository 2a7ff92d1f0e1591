"""Worker of Sonobuoy's plugin protocol: a container beside a plugin that sends its results to the aggregator.

The plugin writes its results and then a file `done` with their path. Without `done` the worker sends the folder when all other
containers of the pod have completed. It relays reports of progress from a port on localhost. Everything goes to the
aggregator over TLS with the client certificate of the run. Runs in pods: only the standard library is imported.

    python -m tests.support.sonobuoy.worker global|single-node
"""

from __future__ import annotations

import http.server
import os
import ssl
import sys
import tarfile
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

from tests.support.sonobuoy.in_cluster import call, pod_path

RESULTS = Path(os.environ["SONOBUOY_RESULTS_DIR"])
ATTEMPTS = 60


def context() -> ssl.SSLContext:
    """Return the TLS settings of the environment."""
    made = ssl.create_default_context(cadata=os.environ["CA_CERT"])
    with tempfile.TemporaryDirectory() as folder:
        for name in ("CLIENT_CERT", "CLIENT_KEY"):
            (Path(folder) / name).write_text(os.environ[name])
        made.load_cert_chain(f"{folder}/CLIENT_CERT", f"{folder}/CLIENT_KEY")
    return made


def send(method: str, what: str, data: bytes, **headers: str) -> int:
    """Send to the aggregator and return the status; results that it has already are no error."""
    kind, plugin = sys.argv[1], os.environ["RESULT_TYPE"]
    place = f"global/{plugin}" if kind == "global" else f"by-node/{os.environ['NODE_NAME']}/{plugin}"
    url = f"{os.environ['AGGREGATOR_URL']}/api/v1/{what}/{place}"
    request = urllib.request.Request(url, data=data, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30, context=context()) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code


class Progress(http.server.BaseHTTPRequestHandler):
    """Relays reports of progress."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(send("POST", "progress", body))
        self.send_header("Content-Length", "0")
        self.end_headers()


def others_completed() -> bool:
    """Return whether all other containers of the pod have ended without an error."""
    pod = call("GET", pod_path(os.environ["SONOBUOY_NS"], os.environ["SONOBUOY_PLUGIN_POD"]))
    own = os.environ["SONOBUOY_WORKER_CONTAINER"]
    others = [each for each in pod["status"]["containerStatuses"] if each["name"] != own]
    return all(each["state"].get("terminated", {}).get("exitCode") == 0 for each in others)


def result() -> Path:
    """Wait for the result and return its file; a folder becomes an archive."""
    done = RESULTS / "done"
    while not done.exists() and not others_completed():
        time.sleep(0.5)
    path = Path(done.read_text().strip()) if done.exists() else RESULTS
    if not path.is_dir():
        return path
    archive = Path(tempfile.mkdtemp()) / "results.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(path, arcname=".")
    return archive


def main() -> None:
    relay = http.server.ThreadingHTTPServer(("", int(os.environ["SONOBUOY_PROGRESS_PORT"])), Progress)
    threading.Thread(target=relay.serve_forever, daemon=True).start()
    path = result()
    headers = {"Content-Disposition": f"attachment;filename={path.name}", "Content-Type": "application/octet-stream"}
    for _ in range(ATTEMPTS):
        try:
            status = send("PUT", "results", path.read_bytes(), **headers)
        except OSError as error:
            print(f"the aggregator cannot be reached: {error}", flush=True)
        else:
            print(f"the aggregator answered {status}", flush=True)
            if status in (200, 409):
                break
        time.sleep(1)
    else:
        sys.exit(1)
    while sys.argv[1] == "single-node":  # as the pod of a DaemonSet it would be started again
        time.sleep(3600)


if __name__ == "__main__":
    main()
