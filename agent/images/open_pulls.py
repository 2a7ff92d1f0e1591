"""The pulls of images that are under way or abandoned, by the names that they bring."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from agent.images.names import without_tag

MOST_NAMESPACES = 5
"""Namespaces of abandoned pulls of one name that are known."""


@dataclass(slots=True, eq=False)
class Pull:
    """A pull under way or abandoned."""

    name: str
    before: str
    """ID of the image without a pull record that the node had of this name, "" for none."""
    present: frozenset[str]
    """IDs of images without a pull record that the node has had since before the pull."""
    began: float = float("-inf")
    """By the monotonic clock."""
    namespaces: set[str] = field(default_factory=set)
    """Of the pods that pull; `MOST_NAMESPACES` at most, none of a pull of the last agent."""
    abandoned_at: float | None = None
    merged_into: Pull | None = None
    is_forgotten: bool = False

    @property
    def is_open(self) -> bool:
        """True while nobody knows all that it brings."""
        return not (self.merged_into or self).is_forgotten


class OpenPulls:
    """The pulls, by repository and name."""

    def __init__(self) -> None:
        self._pulls: dict[str, dict[str, list[Pull]]] = {}
        """An abandoned pull stands for all abandoned ones of its name."""

    def all(self) -> Iterator[Pull]:
        return (pull for names in self._pulls.values() for pulls in names.values() for pull in pulls)

    def of(self, name: str) -> Iterator[Pull]:
        """Return the pulls that bring a listed name: a tag, or any digest of the repository."""
        names = self._pulls.get(without_tag(name), {})
        if "@" in name:
            return (pull for pulls in names.values() for pull in pulls)
        return iter(names.get(name, ()))

    def add(self, pull: Pull) -> None:
        self._pulls.setdefault(without_tag(pull.name), {}).setdefault(pull.name, []).append(pull)

    def abandon(self, pull: Pull, at: float) -> None:
        self._remove(pull)
        pull.abandoned_at = at
        for other in self._pulls.get(without_tag(pull.name), {}).get(pull.name, ()):
            if other.abandoned_at is not None:
                other.present &= pull.present
                other.began = min(other.began, pull.began)
                other.namespaces = {*sorted(other.namespaces | pull.namespaces)[:MOST_NAMESPACES]}
                other.before = other.before if other.before == pull.before else ""
                other.abandoned_at, pull.merged_into = pull.abandoned_at, other
                return
        self.add(pull)

    def forget(self, pull: Pull) -> None:
        pull.is_forgotten = True
        self._remove(pull)

    def _remove(self, pull: Pull) -> None:
        repository = without_tag(pull.name)
        names = self._pulls.get(repository, {})
        pulls = names.get(pull.name, [])
        if pull in pulls:
            pulls.remove(pull)
            if not pulls:
                del names[pull.name]
            if not names:
                del self._pulls[repository]
