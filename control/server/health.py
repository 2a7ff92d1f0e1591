"""/healthz, /livez and /readyz: named checks, each alone or together, as apiserver's healthz package answers them.

A hook is a step of the start under upstream's name (`poststarthook/rbac/bootstrap-roles`): a check that fails until the
step is done. It stands in all three endpoints.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping

Check = Callable[[], str | None]
"""Returns None if all is well, else what is wrong (which is not shown to the outside)."""


class Health:
    """The checks of each endpoint, in the order they were added."""

    def __init__(self) -> None:
        self.live: dict[str, Check] = {"ping": lambda: None, "log": lambda: None}
        self.ready: dict[str, Check] = dict(self.live)
        self._unfinished: set[str] = set()
        self.finished = asyncio.Event()
        """Set once all steps of the start have been done."""
        self.counts: dict[tuple[str, str, bool], int] = {}
        """Number of outcomes that /metrics/slis has counted, by check, endpoint and outcome."""

    def add(self, name: str, check: Check, *, live: bool = False) -> None:
        """Add a check to readiness, and with `live` to liveness too."""
        self.ready[name] = check
        if live:
            self.live[name] = check

    def expect(self, *names: str) -> None:
        """Add steps of the start, which have not been done yet."""
        for name in names:
            self._unfinished.add(name)
            self.add(name, lambda name=name: "not finished" if name in self._unfinished else None, live=True)  # type: ignore[misc]

    def done(self, *names: str) -> None:
        """Say that steps of the start have been done; one of them may be done again and again."""
        self._unfinished.difference_update(names)
        if not self._unfinished:
            self.finished.set()

    def states(self) -> Iterator[tuple[str, str, bool]]:
        """Yield name, endpoint and outcome of every check, for /metrics/slis."""
        for root, checks in (("healthz", self.live), ("livez", self.live), ("readyz", self.ready)):
            for name, check in checks.items():
                passed = check() is None
                self.counts[name, root, passed] = self.counts.get((name, root, passed), 0) + 1
                yield name, root, passed

    def answer(self, path: str, query: Mapping[str, list[str]]) -> tuple[int, str] | None:
        """Return (status, text) for a health path; None if there is no such check."""
        root, _, name = path.strip("/").partition("/")
        checks = self.ready if root == "readyz" else self.live
        if name:
            if name not in checks:
                return None
            failed = checks[name]()
            return (200, "ok") if failed is None else (500, f"internal server error: {failed}\n")
        excluded = set(query.get("exclude", []))
        lines, bad = [], False
        for check_name, check in checks.items():
            if check_name in excluded:
                excluded.discard(check_name)
                lines.append(f"[+]{check_name} excluded: ok\n")
            elif check() is None:
                lines.append(f"[+]{check_name} ok\n")
            else:
                bad = True
                lines.append(f"[-]{check_name} failed: reason withheld\n")
        if excluded:
            shown = ", ".join(f'"{unknown}"' for unknown in sorted(excluded))
            lines.append(f"warn: some health checks cannot be excluded: no matches for {shown}\n")
        if bad:
            return 500, "".join(lines) + f"{root} check failed\n"
        if "verbose" in query:
            return 200, "".join(lines) + f"{root} check passed\n"
        return 200, "ok"
