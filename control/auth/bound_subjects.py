"""Index of RBAC bindings by the users and groups that they name, in a namespace or in the cluster.

A binding of few subjects is indexed by each of them. One of many has a set of its own, which replaces the one before as a
whole: so a lookup costs such a binding one step for each group of the user, and never sees a part of a binding.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from control.auth.compilation import PIECE, Pieces
from control.auth.service_account_names import username
from control.auth.user import UserInfo

Subject = dict[str, Any]
LARGE = 1024
"""Subjects from which on a binding has a set of its own."""


class BoundSubjects:
    """Names of bindings by namespace ("" for the cluster's) and subject."""

    def __init__(self) -> None:
        self._small: dict[str, dict[str, dict[str, None]]] = {}
        """By namespace and subject."""
        self._large: dict[str, dict[str, frozenset[str]]] = {}
        """Subjects by namespace and name."""

    def has(self, namespace: str) -> bool:
        """Return whether a namespace has bindings with subjects."""
        return namespace in self._small or namespace in self._large

    def of(self, namespace: str, user: UserInfo) -> list[str]:
        """Return the names of the bindings that name the user or one of their groups."""
        subjects = subjects_of(user)
        small = self._small.get(namespace, {})
        found = [name for subject in subjects for name in small.get(subject, ())]
        for name, bound in self._large.get(namespace, {}).items():
            if not bound.isdisjoint(subjects):
                found.append(name)
        return list(dict.fromkeys(found))

    def add(self, namespace: str, name: str, subjects: Iterable[Subject]) -> None:
        """Add a binding of few subjects."""
        here = self._small.setdefault(namespace, {})
        for subject in subjects:
            here.setdefault(subject_key(subject, namespace), {})[name] = None
        if not here:
            del self._small[namespace]

    def add_large(self, namespace: str, name: str, subjects: frozenset[str]) -> None:
        """Add a binding of many subjects."""
        self._large.setdefault(namespace, {})[name] = subjects

    def remove(self, namespace: str, name: str, subjects: Iterable[Subject]) -> None:
        """Remove a binding that has these subjects."""
        if name in self._large.get(namespace, {}):
            del self._large[namespace][name]
            if not self._large[namespace]:
                del self._large[namespace]
            return
        here = self._small.get(namespace, {})
        for subject in {subject_key(s, namespace) for s in subjects}:
            del here[subject][name]
            if not here[subject]:
                del here[subject]
        if not here:
            self._small.pop(namespace, None)


def keys(subjects: Sequence[Subject], namespace: str) -> Pieces[frozenset[str]]:
    """Return the users and groups of a binding's subjects."""
    found = set[str]()
    for start in range(0, len(subjects), PIECE):
        found.update(subject_key(subject, namespace) for subject in subjects[start : start + PIECE])
        yield
    return frozenset(found)


def subjects_of(user: UserInfo) -> tuple[str, ...]:
    """Return the keys under which bindings name a user."""
    return (f"User {user.name}", *(f"Group {group}" for group in user.groups))


def subject_key(subject: Subject, namespace: str) -> str:
    """Return the user or group that a subject stands for; an account without a namespace is in the binding's."""
    kind, name = subject.get("kind"), subject.get("name", "")
    if kind == "ServiceAccount":
        return "User " + username(subject.get("namespace") or namespace, name)
    return f"{kind} {name}"


def shown_subject(subjects: Sequence[Subject], namespace: str, user: UserInfo) -> str:
    """Return the subject of a binding that stands for a user, in the form of upstream's messages; "" if there is none."""
    mine = frozenset(subjects_of(user))
    names = {user.name, user.name.rpartition(":")[2], *user.groups}
    subject = next((s for s in subjects if s.get("name", "") in names and subject_key(s, namespace) in mine), None)
    if subject is None:
        return ""
    if subject["kind"] == "ServiceAccount":
        return f'ServiceAccount "{subject["name"]}/{subject.get("namespace") or namespace}"'
    return f'{subject["kind"]} "{subject["name"]}"'
