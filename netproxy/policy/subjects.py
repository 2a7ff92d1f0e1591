"""Policies by the selector of the pods that they isolate. No I/O.

A namespace may have any number of policies. What each change asks of a selector is known here without a walk over all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from netproxy.policy.model import Policy
from netproxy.policy.selector import Selector


class Subjects:
    """Policies of a table by the selector of their pods."""

    def __init__(self) -> None:
        self._isolating: dict[Selector, Counter[str]] = {}
        """Number of policies that restrict each direction; "" stands for all policies."""
        self._allowing: dict[Selector, dict[str, Policy]] = {}

    def put(self, policy: Policy) -> None:
        self._isolating.setdefault(policy.subject, Counter()).update(("", *policy.rules))
        if policy.allowing:
            self._allowing.setdefault(policy.subject, {})[policy.key] = policy

    def remove(self, policy: Policy) -> None:
        counts = self._isolating[policy.subject] - Counter(("", *policy.rules))
        self._isolating[policy.subject] = counts
        if not counts:
            del self._isolating[policy.subject]
        allowing = self._allowing.get(policy.subject, {})
        allowing.pop(policy.key, None)
        if not allowing:
            self._allowing.pop(policy.subject, None)

    def __contains__(self, selector: object) -> bool:
        """Return whether a policy isolates the pods of a selector."""
        return selector in self._isolating

    def isolates(self, selector: Selector, direction: str) -> bool:
        """Return whether a policy restricts a direction of the pods of a selector."""
        return direction in self._isolating.get(selector, ())

    def allowing(self, selector: Selector) -> Mapping[str, Policy]:
        """Return the policies by key that allow something to or from the pods of a selector."""
        return self._allowing.get(selector, {})
