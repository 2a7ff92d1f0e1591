"""Which handlers the kubelet port has, as the KubeletConfiguration says."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Doors:
    """Which handlers there are: fields of the KubeletConfiguration by the same names."""

    debugging: bool = True
    """Logs, commands and sessions, configuration: all that shows or does more than figures."""
    system_logs: bool = True
    system_log_queries: bool = False
    profiling: bool = False
    flags: bool = True
