"""kube-scheduler's flags. What it does stands in its file (`--config`, KubeSchedulerConfiguration)."""

from __future__ import annotations

from control.flags.client import FIXED, SERVING
from control.flags.kinds import Kind

FLAGS: dict[str, tuple[str, Kind]] = dict(SERVING)
__all__ = ["FIXED", "FLAGS"]
