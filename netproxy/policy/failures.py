"""Logs and reports policies that cannot be enforced."""

from __future__ import annotations

import logging
from collections.abc import Callable

from kube.api import networking_v1
from netproxy.policy.table import PolicyTable

log = logging.getLogger(__name__)
Report = Callable[[networking_v1.NetworkPolicy, str], None]
"""Called with a policy and the reason why it cannot be enforced."""


class Failures:
    """Logs each failure at once. Reports it when the policy selects a pod of this node, so that only nodes concerned do."""

    def __init__(
        self, table: PolicyTable, get: Callable[[str], networking_v1.NetworkPolicy | None], report: Report
    ) -> None:
        self._table, self._get, self._report = table, get, report
        self._unreported: dict[str, str] = {}

    def add(self, key: str, why: str) -> None:
        log.error("network policy %s is not enforced, the pods that it selects are isolated: %s", key, why)
        self._unreported[key] = why

    def forget(self, key: str) -> None:
        """Drop the failure of a policy that was changed or deleted."""
        self._unreported.pop(key, None)

    def report(self) -> None:
        for key, why in list(self._unreported.items()):
            policy, loaded = self._get(key), self._table.policies.get(key)
            # A policy that was created again may not be loaded yet.
            if policy and loaded and self._table.members_here(loaded.subject):
                self._report(policy, why)
                del self._unreported[key]
