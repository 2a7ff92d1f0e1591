"""How many different peers of a namespace's policies may be about one pod, by the labels that they are found by. No I/O.

A pod that comes is compared with the selectors that its labels' values lead to, and with all that no value leads to
(selector_index.py). Their number has a limit for each label, so a pod costs little whatever the policies of a namespace say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TypeVar

from netproxy.errors import PolicyError
from netproxy.policy.limits import MAX_ALIKE, TOO_MANY_ALIKE
from netproxy.policy.selector import Selector
from netproxy.policy.selector_index import Hint, places_of

Kind = tuple[str, str | Hint, Hint]
"""Namespace of the policies, namespace or label of namespaces, label of pods; a hint that is no value of a label is None."""


class Likeness:
    """The peers of policies by how they are found."""

    def __init__(self) -> None:
        self._users: dict[Kind, Counter[Selector]] = {}

    def check(self, namespace: str, gone: Iterable[Selector], come: Iterable[Selector]) -> None:
        """Raise PolicyError where a namespace's policies would have too many peers of a kind."""
        self.change(namespace, gone, come)
        try:
            for selector in come:
                if any(len(self._users[kind]) > MAX_ALIKE for kind in _kinds(namespace, selector)):
                    raise PolicyError(TOO_MANY_ALIKE)
        finally:
            self.change(namespace, come, gone)

    def change(self, namespace: str, gone: Iterable[Selector], come: Iterable[Selector]) -> None:
        """Take in that a policy has other peers."""
        for selector in come:
            for kind in _kinds(namespace, selector):
                self._users.setdefault(kind, Counter())[selector] += 1
        for selector in gone:
            for kind in _kinds(namespace, selector):
                users = self._users[kind]
                users[selector] -= 1
                if not users[selector]:
                    del users[selector]
                if not users:
                    del self._users[kind]


def _kinds(namespace: str, selector: Selector) -> set[Kind]:
    return {(namespace, _value(where), _value(hint)) for where, hint in places_of(selector)}


V = TypeVar("V")


def _value(hint: V) -> V | None:
    return None if isinstance(hint, tuple) and hint[1] is None else hint
