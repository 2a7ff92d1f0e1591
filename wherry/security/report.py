"""The results, for people on 80 columns and for programs."""

from __future__ import annotations

import json
import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence

from wherry.security.rows import Check, CheckResult

WIDTH = 80
_INDENT = " " * 13
_KEPT = "\u00a0"
"""Stands for a space that no line ends at, while text is wrapped."""
Results = Sequence[tuple[Check, CheckResult]]


def lines(results: Results) -> Iterator[tuple[str, str]]:
    """Yield (verdict, line); a line is longer than 80 columns where it has a path or command that must stay whole."""
    for check, found in results:
        yield found.verdict, f"{found.verdict:4} {check.id:7} {check.title}"
        if found.verdict == "PASS":
            continue
        for text in (found.reason, found.fix and f"fix: {found.fix}"):
            for line in wrapped(text):
                yield "", line
    yield "", ""
    yield "", summary(results)


def wrapped(text: str) -> list[str]:
    """Break a text at spaces, but for those within backquotes: what one copies stays in one piece."""
    whole = re.sub(r"`[^`]*`", lambda found: found[0].replace(" ", _KEPT), text)
    broken = textwrap.wrap(
        whole,
        WIDTH,
        initial_indent=_INDENT,
        subsequent_indent=_INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )
    # A piece that is too long for its column begins further left.
    return [line.replace(_KEPT, " ") if len(line) <= WIDTH else _left(line) for line in broken]


def _left(line: str) -> str:
    text = line.replace(_KEPT, " ").strip()
    return " " * max(0, WIDTH - len(text)) + text


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
