"""The results, for people on 80 columns and for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from wherry.output import Column
from wherry.security.rows import Check, CheckResult
from wherry.wrapping import wrapped

_INDENT = 13
Results = Sequence[tuple[Check, CheckResult]]


def lines(results: Results) -> Iterator[tuple[str, str]]:
    """Yield (verdict, line); a line is longer than 80 columns where it has a path or command that must stay whole."""
    for check, found in results:
        yield found.verdict, f"{found.verdict:4} {check.id:7} {check.title}"
        if found.verdict == "PASS":
            continue
        for text in (found.reason, found.fix and f"fix: {found.fix}"):
            for line in wrapped(text, _INDENT):
                yield "", line
    yield "", ""
    yield "", summary(results)


def summary(results: Results) -> str:
    counts = Counter(found.verdict for _, found in results)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in ("PASS", "FAIL", "WARN", "N/A"))


COLUMNS: Sequence[Column[tuple[Check, CheckResult]]] = (
    Column("RESULT", lambda row: row[1].verdict),
    Column("ID", lambda row: row[0].id),
    Column("TITLE", lambda row: row[0].title),
    Column("REASON", lambda row: row[1].reason),
    Column("FIX", lambda row: row[1].fix),
)


def row_data(row: tuple[Check, CheckResult]) -> dict[str, str]:
    """Return a check with its result as JSON data."""
    check, found = row
    return {"id": check.id, "title": check.title, "result": found.verdict, "reason": found.reason, "fix": found.fix}


def as_data(results: Results) -> dict[str, Any]:
    """Return the results as a document: a list of checks, and how many have which result."""
    counts = Counter(found.verdict for _, found in results)
    checks = [row_data(row) for row in results]
    return {"benchmark": "CIS Kubernetes Benchmark 1.12", "checks": checks, "summary": dict(sorted(counts.items()))}
