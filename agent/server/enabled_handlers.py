"""Handlers of the kubelet port that the KubeletConfiguration enables."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EnabledHandlers:
    """The enabled handlers, by the names of the KubeletConfiguration's fields."""

    debugging: bool = True
    """Logs, commands and sessions, configuration: all but metrics and health."""
    system_logs: bool = True
    system_log_queries: bool = False
    profiling: bool = False
    flags: bool = True
