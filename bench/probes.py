"""100 pods with readiness probes every second, as many as a node of two cores is to keep up with.

Each pod's web server notes every request. Over half a minute each pod is to be asked once a second; how late the slowest was,
and what the agent needed for it, is the result. `scripts/bench probes`.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

from tests.support.cluster import BUSYBOX, Cluster

PODS, SECONDS = 100, 30
SERVE = "echo ok >/tmp/index.html; exec httpd -f -v -p 80 -h /tmp"


def measure(made: Cluster) -> dict[str, float]:
    """Return how often pods were asked, in requests a second a pod, and the agent's share of a core meanwhile."""
    probe = {"httpGet": {"path": "/", "port": 80}, "periodSeconds": 1}
    container: dict[str, Any] = {
        "name": "web",
        "image": BUSYBOX,
        "command": ["sh", "-c", SERVE],
        "readinessProbe": probe,
    }
    template = {
        "metadata": {"labels": {"app": "probed"}},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]},
    }
    spec = {"replicas": PODS, "selector": {"matchLabels": {"app": "probed"}}, "template": template}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "probed"}, "spec": spec}
    made.kubectl("apply", "-f", "-", input=json.dumps(deployment))
    made.kubectl("rollout", "status", "deployment/probed", "--timeout=180s", timeout=190)
    time.sleep(5)
    before, ticks = _asked(made), _ticks(made)
    began = time.monotonic()
    time.sleep(SECONDS)
    after, used = _asked(made), _ticks(made) - ticks
    seconds = time.monotonic() - began
    rates = [(after[log] - count) / seconds for log, count in before.items()]
    made.kubectl("delete", "deployment", "probed")
    return {
        "probes_a_second_median": round(statistics.median(rates), 3),
        "probes_a_second_least": round(min(rates), 3),
        "probes_agent_cpu_percent": round(used / os.sysconf("SC_CLK_TCK") / seconds * 100, 1),
    }


def _asked(made: Cluster) -> dict[Path, int]:
    """Return how many requests each pod has recorded."""
    logs = (made.prefix / "var/log/pods").glob("default_probed-*/web/0.log")
    return {log: log.read_bytes().count(b"response:200") for log in logs}


def _ticks(made: Cluster) -> int:
    fields = Path(f"/proc/{made.pid('agent')}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
