"""Plugins for tests of Sonobuoy's protocol, whose results reach the worker by the file `done` or without it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.support.cluster import BUSYBOX

RESULTS = "/tmp/sonobuoy/results"
_DONE = f"printf {RESULTS}/report.txt > {RESULTS}/done"
_PROGRESS = (
    """wget -qO- --post-data '{"msg": "half", "total": 2, "completed": 1}' """
    "http://localhost:$SONOBUOY_PROGRESS_PORT/progress"
)
_SCRIPTS = {
    # The file `done` names the result; the worker relays a report of progress before.
    "done-file": ("Job", f"until {_PROGRESS}; do sleep 1; done; echo passed > {RESULTS}/report.txt; {_DONE}"),
    "each-node": ("DaemonSet", f"echo $NODE_NAME > {RESULTS}/report.txt; {_DONE}; sleep 100000"),
    # Without it the worker asks the API server whether the pod's other containers have completed.
    "no-done-file": ("Job", f"echo passed > {RESULTS}/report.txt"),
}


def definitions() -> dict[str, dict[str, Any]]:
    """Return the plugins' definitions by their names."""
    return {name: _definition(name, *found) for name, found in _SCRIPTS.items()}


def _definition(name: str, driver: str, script: str) -> dict[str, Any]:
    container = {
        "name": "plugin",
        "image": BUSYBOX,
        "command": ["sh", "-c", script],
        "env": [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "volumeMounts": [{"name": "results", "mountPath": RESULTS}],
    }
    header = {"driver": driver, "plugin-name": name, "result-format": "raw"}
    return {"sonobuoy-config": header, "spec": container}


def expected_results(nodes: Iterable[str]) -> dict[tuple[str, str], str]:
    """Return the report of each plugin and node; a Job reports for the node `global`."""
    found = {(name, "global"): "passed\n" for name, (driver, _) in _SCRIPTS.items() if driver == "Job"}
    return found | {("each-node", node): f"{node}\n" for node in nodes}


def check_status(status: dict[str, Any], nodes: Iterable[str]) -> None:
    """Fail unless all plugins are complete, and the report of progress has arrived."""
    assert status["status"] == "complete", status
    seen = {(each["plugin"], each["node"]): each["status"] for each in status["plugins"]}
    assert seen == dict.fromkeys(expected_results(nodes), "complete")
    progress = {each["plugin"]: each["progress"] for each in status["plugins"] if each.get("progress")}
    assert [(name, found["msg"], found["completed"]) for name, found in progress.items()] == [("done-file", "half", 1)]


def check_reports(texts: dict[str, str], nodes: Iterable[str]) -> None:
    """Fail unless the archive of results has the plugins' reports; `texts` are its files by their paths."""
    found = {path: text for path, text in texts.items() if path.endswith("/report.txt")}
    expected = {
        f"plugins/{plugin}/results/{node}/report.txt": text for (plugin, node), text in expected_results(nodes).items()
    }
    assert found == expected
