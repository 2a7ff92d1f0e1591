"""Checks of the CIS benchmark and their results."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from wherry.security.facts import Facts

Verdict = Literal["PASS", "FAIL", "WARN", "N/A"]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check. WARN needs human judgement; `fix` is one line with commands in backquotes."""

    verdict: Verdict
    reason: str = ""
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """One check: the benchmark's number, Wherry's title, the function that checks it, and the expected result."""

    id: str
    title: str
    look: Callable[[Facts], CheckResult]
    state: str = "passes"
    """Result of an installation without custom settings; if it differs from the benchmark, the reason."""
    for_worker: bool = False
    """Also checked on machines without a control plane."""


def passed(reason: str = "") -> CheckResult:
    return CheckResult("PASS", reason)


def failed(reason: str, fix: str) -> CheckResult:
    return CheckResult("FAIL", reason, fix)


def judge(reason: str, fix: str) -> CheckResult:
    """Return WARN: the result needs human judgement."""
    return CheckResult("WARN", reason, fix)


def not_here(reason: str) -> CheckResult:
    return CheckResult("N/A", reason)


def listed(names: Iterable[str], most: int = 3) -> str:
    """Return the first few names separated by commas, and the number of the others."""
    found = sorted(set(names))
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return ", ".join(found[:most]) + more
