"""Files of Wherry that do what a part of the inside view shows: a fixed table, so that no request names a path."""

from __future__ import annotations

from pathlib import Path

from kube.errors import StatusError

ROOT = Path(__file__).resolve().parents[2]
PARTS = {
    "edge": "control/server/edge.py",
    "pipeline": "control/server/pipeline.py",
    "fairness": "control/fairness/fairness.py",
    "registry": "control/registry/registry.py",
    "admission": "control/admission/chain.py",
    "store": "control/storage/writer.py",
    "cache": "control/storage/cache.py",
    "watches": "control/server/watch_streams.py",
    "controllers": "kube/controller.py",
    "queues": "kube/workqueue.py",
    "scheduler": "control/scheduler/scheduling_cycle.py",
    "agent": "agent/pods/worker.py",
    "runtime": "cri/runtime_service.py",
    "proxy": "netproxy/proxy.py",
    "rules": "netproxy/reconciler.py",
}


def text(part: str) -> str:
    """Return the text of a part's file. Raise StatusError 404 for other names, and for parts that are not installed."""
    if part not in PARTS:
        raise StatusError(404, "NotFound", "there is no such part")
    try:
        return (ROOT / PARTS[part]).read_text(encoding="utf-8")
    except OSError as error:
        raise StatusError(404, "NotFound", f"{PARTS[part]} is not installed here") from error
