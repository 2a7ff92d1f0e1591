"""Steps through a history by commands: one line each."""

from __future__ import annotations

from collections.abc import Callable

from wherry.testing.errors import ClusterError
from wherry.testing.history.history import Change
from wherry.testing.history.replay import Replay

HELP = "n: next change, p: previous one, NUMBER: go to a revision, l [TEXT]: list changes, q: quit"
AROUND, MOST_FOUND = 10, 200
"""Changes before and after the present one that are listed, and changes with a text."""


class Commands:
    """Executes commands on a replay. `show` prints a line."""

    def __init__(self, replay: Replay, show: Callable[[str], None]) -> None:
        self._replay, self._show = replay, show

    async def execute(self, line: str) -> bool:
        """Execute a command; False if it is the end."""
        command, _, argument = line.strip().partition(" ")
        replay = self._replay
        try:
            if command == "q":
                return False
            if command in ("n", ""):
                await self._go(replay.revision + 1)
            elif command == "p":
                await self._go(replay.revision - 1)
            elif command.isdigit():
                await self._go(int(command))
            elif command == "l":
                self._list(argument.strip())
            else:
                self._show(HELP)
        except ClusterError as error:
            self._show(str(error))
        return True

    async def _go(self, revision: int) -> None:
        await self._replay.go(revision)
        self._show(self.position())

    def position(self) -> str:
        """Return the present revision with its change."""
        history, revision = self._replay.history, self._replay.revision
        changes = history.upto(revision)
        what = str(changes[-1]) if changes else f"{revision}: before the first change"
        return f"{what} [{history.revision}-{history.last}]"

    def _list(self, text: str) -> None:
        history, now = self._replay.history, self._replay.revision
        if text:
            found = [change for change in history.changes if text in str(change)]
            chosen, left = found[:MOST_FOUND], len(found) - MOST_FOUND
        else:
            at = now - history.revision
            chosen, left = history.changes[max(0, at - AROUND) : at + AROUND], 0
        for change in chosen:
            self._show(_marked(change, now))
        if left > 0:
            self._show(f"... and {left} more changes")


def _marked(change: Change, now: int) -> str:
    return f"{'>' if change.revision == now else ' '} {change}"
