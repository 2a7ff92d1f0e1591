"""The results, for people on 80 columns and for programs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence

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


def as_json(results: Results) -> str:
    """Return the results as a document: a list of checks, and how many have which result."""
    counts = Counter(found.verdict for _, found in results)
    checks = [
        {"id": check.id, "title": check.title, "result": found.verdict, "reason": found.reason, "fix": found.fix}
        for check, found in results
    ]
    document = {"benchmark": "CIS Kubernetes Benchmark 1.12", "checks": checks, "summary": dict(sorted(counts.items()))}
    return json.dumps(document, indent=2)
