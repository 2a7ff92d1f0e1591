"""Counts the members of the peers of each namespace's policies, as they change. No I/O.

A member of a selection that has an address counts for each policy that uses the selection, as often as the policy's
`weights` say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping

from netproxy.policy.model import Policy
from netproxy.policy.selector import Selector

SLICE = 100
"""Additions between suspensions, of several policies and pods together."""


class MemberCounts:
    """The totals of namespaces. Changes of selections are added to them by `settle`, for many namespaces may share one."""

    def __init__(self, most: int) -> None:
        """`most` is the limit of a namespace."""
        self._most = most
        self._policies: dict[str, dict[str, Policy]] = {}
        """Policies with peers, by namespace and key."""
        self._weights: dict[Selector, Counter[str]] = {}
        """The sum of the weights that the policies of each namespace give a selection."""
        self._counted: dict[Selector, int] = {}
        """Members of each selection that are in the totals."""
        self._changed: dict[Selector, int] = {}
        """The members of selections of which others are in the totals."""
        self._totals: Counter[str] = Counter()
        self._excessive: dict[str, None] = {}
        self._additions = 0
        """Since the last suspension."""

    def add(self, policy: Policy, sizes: Mapping[Selector, int]) -> None:
        """Add a policy; `sizes` are the members of the selections that it uses."""
        namespace = policy.subject.namespace
        self._additions += len(policy.weights)
        if policy.weights:
            self._policies.setdefault(namespace, {})[policy.key] = policy
        for selector, weight in policy.weights.items():
            self._weights.setdefault(selector, Counter())[namespace] += weight
            self._add(namespace, weight * self._counted.setdefault(selector, sizes[selector]))

    def remove(self, policy: Policy) -> None:
        """Remove a policy, or its old version where a new one was added."""
        namespace = policy.subject.namespace
        policies = self._policies.get(namespace, {})
        if policies.get(policy.key) is policy:
            del policies[policy.key]
            if not policies:
                del self._policies[namespace]
        for selector, weight in policy.weights.items():
            weights = self._weights[selector]
            weights[namespace] -= weight
            self._add(namespace, -weight * self._counted[selector])
            if not weights[namespace]:
                del weights[namespace]
            if not weights:
                del self._weights[selector], self._counted[selector]
                self._changed.pop(selector, None)

    def resize(self, selector: Selector, members: int) -> None:
        """Store how many members a selection has now."""
        if selector in self._weights:
            self._changed[selector] = members

    def settle(self) -> Generator[None, None, None]:
        """Add what has changed to the totals, in slices."""
        while self._changed:
            selector, members = self._changed.popitem()
            more, self._counted[selector] = members - self._counted[selector], members
            for namespace, weight in self._weights[selector].items() if more else ():
                self._add(namespace, weight * more)
                self._additions += 1
            self._additions += 1
            if self._additions >= SLICE:
                self._additions = 0
                yield
        if self._additions >= SLICE:
            self._additions = 0
            yield

    def total(self, namespace: str) -> int:
        """Return the members of a namespace as of the last `settle`."""
        return self._totals[namespace]

    def is_excessive(self, namespace: str) -> bool:
        return namespace in self._excessive

    def excessive(self) -> list[str]:
        """Return the namespaces that are above the limit."""
        return list(self._excessive)

    def has(self, key: str) -> bool:
        """Return whether a policy has peers."""
        return key in self._policies.get(key.partition("/")[0], ())

    def largest_first(self, namespace: str) -> Generator[None, None, list[str]]:
        """Return the policies of a namespace, the one with the most members first, in slices."""
        found: list[tuple[int, str]] = []
        count = 0
        for policy in list(self._policies.get(namespace, {}).values()):
            sizes = [self._counted.get(each, 0) * weight for each, weight in policy.weights.items()]
            found.append((sum(sizes), policy.key))
            count += 1 + len(sizes)
            if count >= SLICE:
                count = 0
                yield
        return [key for _, key in sorted(found, reverse=True)]

    def _add(self, namespace: str, members: int) -> None:
        total = self._totals[namespace] = self._totals[namespace] + members
        if total > self._most:
            self._excessive[namespace] = None
        else:
            self._excessive.pop(namespace, None)
        if not total:
            del self._totals[namespace]
