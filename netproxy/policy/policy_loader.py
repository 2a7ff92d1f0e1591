"""Loads policies into the table. Those that cost too much are closed: they select the same pods and allow nothing.

What a policy's peers select depends on the pods there are, so a policy may have to be closed when pods come. Closed ones are
retried one after the other, for pods or other policies may have gone; a try may cost as much as the largest policy.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping

from kube.api import networking_v1
from kube.clock import Clock
from netproxy.errors import PolicyError
from netproxy.policy.failures import Failures
from netproxy.policy.limits import (
    MAX_COST,
    MAX_COST_HERE,
    MAX_PAIRS_HERE,
    TOO_COSTLY,
    TOO_COSTLY_HERE,
    TOO_MANY_MEMBERS,
    TOO_MANY_PAIRS_HERE,
)
from netproxy.policy.model import Policy
from netproxy.policy.node_costs import costs_here, pairs_here
from netproxy.policy.parsing import closed, closed_for_all, read
from netproxy.policy.policy_search import by_cost, namespace_of
from netproxy.policy.table import PolicyTable

log = logging.getLogger(__name__)
FAILED = "a selector of it cannot be compared with pods"
CLOSED_RETRY = 60.0
"""Seconds between tries of policies that are closed for their cost."""


class PolicyLoader:
    """Stores policies in a table and closes those that cost too much. `get` returns a policy of the API by its key."""

    def __init__(
        self,
        table: PolicyTable,
        get: Callable[[str], networking_v1.NetworkPolicy | None],
        failures: Failures,
        clock: Clock,
    ) -> None:
        self._table, self._get, self._failures, self._clock = table, get, failures, clock
        self._closed_for_cost: dict[str, dict[str, None]] = {}
        """Policies closed for their cost, by namespace. Policies and namespaces are in the order of their next try."""
        self._retried_at = clock.monotonic()

    def put(self, key: str, policy: networking_v1.NetworkPolicy) -> Generator[None, None, None]:
        """Store a new or changed policy, in slices."""
        self._forget(key)
        yield from self._put(key, policy)
        self._limit_namespace(namespace_of(key))
        yield from self.close_failing()

    def delete(self, key: str) -> None:
        self._forget(key)
        self._table.delete_policy(key)
        self._limit_namespace(namespace_of(key))

    def close_failing(self) -> Generator[None, None, bool]:
        """Close policies whose selectors failed or that select too many pods, in slices; return whether there were any."""
        found = False
        for key in sorted(self._table.selections.failed):
            policy = self._get(key)
            if policy is not None:
                self._close(key, policy, FAILED, closed_for_all(policy))
                found = True
        self._table.selections.failed.clear()
        return (yield from self._limit_members()) or found

    def _limit_members(self) -> Generator[None, None, bool]:
        """Close the policies with the most members of each namespace above its limit; return whether there were any."""
        counts, found = self._table.selections.counts, False
        yield from counts.settle()
        for namespace in counts.excessive():
            for key in (yield from counts.largest_first(namespace)):
                if not counts.is_excessive(namespace):
                    break
                if not counts.has(key):  # `limit_node` has closed it meanwhile
                    continue
                policy = self._get(key)
                if policy is None:  # it has just gone, and its deletion comes
                    self._failures.forget(key)
                    self.delete(key)
                else:
                    self._close(key, policy, TOO_MANY_MEMBERS)
                found = True
                yield
        return found

    def _limit_namespace(self, namespace: str) -> None:
        """Close the largest policies of a namespace until the others cost at most `MAX_COST`."""
        while self._table.costs.total(namespace) > MAX_COST:
            key = self._table.costs.largest(namespace)
            policy = self._get(key)
            if policy is None:
                break
            self._close(key, policy, TOO_COSTLY)

    def limit_node(self) -> None:
        """Close policies of the most costly namespaces until those for pods of this node are within the limits."""
        self._limit_node(pairs_here(self._table), MAX_PAIRS_HERE, TOO_MANY_PAIRS_HERE)
        self._limit_node(costs_here(self._table), MAX_COST_HERE, TOO_COSTLY_HERE)

    def _limit_node(self, costs: Mapping[str, int], most: int, why: str) -> None:
        total = sum(costs.values())
        for key in by_cost(costs) if total > most else ():
            if total <= most:
                break
            total -= costs[key]
            policy = self._get(key)
            if policy is not None:
                self._close(key, policy, why)

    def retry_next(self) -> Generator[None, None, bool]:
        """Try the next closed policy again if its time has come, in slices; return whether one was tried."""
        if not self._closed_for_cost or self._clock.monotonic() - self._retried_at < CLOSED_RETRY:
            return False
        self._retried_at = self._clock.monotonic()
        namespace, keys = next(iter(self._closed_for_cost.items()))
        key = next(iter(keys))
        policy = self._get(key)
        if policy is not None:
            yield from self._put(key, policy)
            self._limit_namespace(namespace)
            yield from self.close_failing()
            self.limit_node()
        self._forget(key)
        known = self._table.policies.get(key)
        if policy is not None and known is not None and not any(known.rules.values()):
            self._closed_for_cost.setdefault(namespace, {})[key] = None  # still closed: retried after all others
        if namespace in self._closed_for_cost:
            self._closed_for_cost[namespace] = self._closed_for_cost.pop(namespace)
        return True

    def _forget(self, key: str) -> None:
        keys = self._closed_for_cost.get(namespace_of(key), {})
        keys.pop(key, None)
        if not keys:
            self._closed_for_cost.pop(namespace_of(key), None)

    def _put(self, key: str, policy: networking_v1.NetworkPolicy) -> Generator[None, None, None]:
        try:
            parsed, why = yield from read(policy)
            yield from self._table.set_policy_in_slices(parsed)
        except PolicyError as error:
            self._close(key, policy, str(error))
        except Exception as error:
            log.exception("network policy %s cannot be processed", key)
            self._close(key, policy, f"it cannot be processed: {error!r}"[:500], closed_for_all(policy))
        else:
            if why:
                self._failures.add(key, why)

    def _close(self, key: str, policy: networking_v1.NetworkPolicy, why: str, instead: Policy | None = None) -> None:
        try:
            self._table.set_policy(instead or closed(policy))
        except PolicyError:  # even its own selector is one too many
            self._table.set_policy(closed_for_all(policy))
        keys = self._closed_for_cost.setdefault(namespace_of(key), {})
        if key not in keys:
            keys[key] = None
            self._failures.add(key, why)
