"""Addon files as they are seen over time: a file counts once it has not changed for a while, and so does its absence.

A file that is being written may be valid and incomplete, and editors replace files by deleting them first. So a new content is
applied after SETTLE_SECONDS, and what is missing in it is deleted after PRUNE_SECONDS.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from control.controllers.addons.folder import AddonFile

SETTLE_SECONDS, PRUNE_SECONDS = 1.0, 10.0


@dataclass(slots=True)
class Tracked:
    """A name in the folder; `file` is None if it is there no more. `since` is the time of its last change."""

    file: AddonFile | None
    since: float
    attempted: bool = False
    """True if the content was applied, or could not be."""


class Files:
    """The addon files of the folder by name. Files whose names cannot be addons' are in `nameless`, by path."""

    def __init__(self) -> None:
        self._tracked: dict[str, Tracked] = {}
        self._nameless: dict[str, str] = {}

    def update(self, found: Iterable[AddonFile], now: float) -> tuple[list[str], list[str]]:
        """Store what a scan found; return the names that changed, and the problems of new files that can be no addon."""
        files: dict[str, AddonFile] = {}
        nameless: dict[str, str] = {}
        for each in found:
            if each.is_addon:
                files.setdefault(each.name, each)
            else:
                nameless[str(each.path)] = each.problem
        problems = [text for path, text in nameless.items() if self._nameless.get(path) != text]
        self._nameless = nameless
        changed = []
        for name in sorted(files.keys() | self._tracked.keys()):
            before, file = self._tracked.get(name), files.get(name)
            if before is None or before.file != file:
                self._tracked[name] = Tracked(file, now)
                changed.append(name)
        return changed, problems

    def expect(self, name: str, now: float) -> None:
        """Track an addon that was applied before, whose file may be there no more."""
        self._tracked.setdefault(name, Tracked(None, now))

    def get(self, name: str) -> Tracked | None:
        return self._tracked.get(name)

    def forget(self, name: str) -> None:
        """Forget an addon whose file and objects are gone."""
        tracked = self._tracked.get(name)
        if tracked is not None and tracked.file is None:
            del self._tracked[name]

    def active(self) -> list[str]:
        """Return the names of the addons that have a file."""
        return [name for name, tracked in self._tracked.items() if tracked.file is not None]
