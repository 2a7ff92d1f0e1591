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
        going, coming = _by_kind(namespace, gone), _by_kind(namespace, come)
        self._move(going, coming)
        many = any(len(self._users[kind]) > MAX_ALIKE for kind, _ in coming)
        self._move(coming, going)
        if many:
            raise PolicyError(TOO_MANY_ALIKE)

    def change(self, namespace: str, gone: Iterable[Selector], come: Iterable[Selector]) -> None:
        """Take in that a policy has other peers."""
        self._move(_by_kind(namespace, gone), _by_kind(namespace, come))

    def _move(self, gone: Iterable[tuple[Kind, Selector]], come: Iterable[tuple[Kind, Selector]]) -> None:
        for kind, selector in come:
            self._users.setdefault(kind, Counter())[selector] += 1
        for kind, selector in gone:
            users = self._users[kind]
            users[selector] -= 1
            if not users[selector]:
                del users[selector]
            if not users:
                del self._users[kind]


def _by_kind(namespace: str, selectors: Iterable[Selector]) -> list[tuple[Kind, Selector]]:
    return [
        (kind, each)
        for each in selectors
        for kind in {(namespace, _value(where), _value(hint)) for where, hint in places_of(each)}
    ]


V = TypeVar("V")


def _value(hint: V) -> V | None:
    return None if isinstance(hint, tuple) and hint[1] is None else hint
