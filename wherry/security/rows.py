"""What a check is, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from wherry.security.facts import Facts

Verdict = Literal["PASS", "FAIL", "WARN", "N/A"]


@dataclass(frozen=True, slots=True)
class Found:
    """The result of one check. WARN is for what people have to judge; `fix` is one line, commands in it in backquotes."""

    verdict: Verdict
    reason: str = ""
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """One row: the benchmark's number, the title in our words, how it is looked at, and how Wherry stands to it."""

    id: str
    title: str
    look: Callable[[Facts], Found]
    state: str = "passes"
    """What an installation without settings of its own has; where it differs from the benchmark, why."""
    for_worker: bool = False
    """Looked at on machines without a control plane too."""


def passed(reason: str = "") -> Found:
    return Found("PASS", reason)


def failed(reason: str, fix: str) -> Found:
    return Found("FAIL", reason, fix)


def judge(reason: str, fix: str) -> Found:
    """Leave the judgement to people."""
    return Found("WARN", reason, fix)


def not_here(reason: str) -> Found:
    return Found("N/A", reason)


def listed(names: Iterable[str], most: int = 3) -> str:
    """Return names with commas between, all but the first few as a number."""
    found = sorted(set(names))
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return ", ".join(found[:most]) + more
