"""Takes policies into the table; those that cost too much are closed: they select the same pods and allow nothing.

What a policy's peers select depends on the pods there are, so a policy may have to be closed when pods come. Closed ones are
tried again one after the other, for pods or other policies may have gone; a try may cost as much as the largest policy.
"""

from __future__ import annotations

from collections.abc import Callable

from kube.api import networking_v1
from kube.clock import Clock
from netproxy.errors import PolicyError
from netproxy.policy.failures import Failures
from netproxy.policy.limits import TOO_MANY_MEMBERS
from netproxy.policy.model import PolicyTable
from netproxy.policy.parsing import closed, read

RETRY_CLOSED = 60.0
"""Seconds between tries of policies that were closed because of what they select."""


class Intake:
    """Puts policies into a table, and keeps those closed that select too much; `get` returns a policy by its key."""

    def __init__(
        self,
        table: PolicyTable,
        get: Callable[[str], networking_v1.NetworkPolicy | None],
        failures: Failures,
        clock: Clock,
    ) -> None:
        self._table, self._get, self._failures, self._clock = table, get, failures, clock
        self._over: dict[str, None] = {}
        """Closed because of what they select, the next to be tried first."""
        self._tried_at = clock.monotonic()

    def put(self, key: str, policy: networking_v1.NetworkPolicy) -> None:
        """Take in a new or changed policy."""
        self._over.pop(key, None)
        self._put(key, policy)
        self.relieve()

    def delete(self, key: str) -> None:
        self._over.pop(key, None)
        self._table.delete_policy(key)

    def relieve(self) -> bool:
        """Close policies until no namespace has too many members; return whether any was closed."""
        found = False
        while key := self._table.excess():
            policy = self._get(key)
            if policy is None:  # it has just gone, and its deletion comes
                break
            self._close(key, policy, TOO_MANY_MEMBERS)
            found = True
        return found

    def look(self) -> bool:
        """Try a closed policy again where it is time to; return whether any was tried."""
        if not self._over or self._clock.monotonic() - self._tried_at < RETRY_CLOSED:
            return False
        self._tried_at = self._clock.monotonic()
        key = next(iter(self._over))
        policy = self._get(key)
        if policy is not None:
            self._put(key, policy)
            self.relieve()
        del self._over[key]
        if policy is not None and not any(self._table.policies[key].rules.values()):
            self._over[key] = None  # still closed: its next turn is the last
        return True

    def _put(self, key: str, policy: networking_v1.NetworkPolicy) -> None:
        parsed, why = read(policy)
        try:
            self._table.set_policy(parsed)
        except PolicyError as error:
            self._close(key, policy, str(error))
        else:
            if why:
                self._failures.add(key, why)

    def _close(self, key: str, policy: networking_v1.NetworkPolicy, why: str) -> None:
        self._table.set_policy(closed(policy))
        if key not in self._over:
            self._over[key] = None
            self._failures.add(key, why)
