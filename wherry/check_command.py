"""Prints what `wherry check` finds on the machine, and with `--security` by the benchmark."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from wherry import output
from wherry.finding import Finding
from wherry.output import Column
from wherry.security import report
from wherry.settings import Settings
from wherry.terminal import console, plain, styled
from wherry.wrapping import beside, wrapped

COLUMNS: Sequence[Column[Finding]] = (
    Column("RESULT", lambda finding: finding.level),
    Column("FOUND", lambda finding: finding.what),
    Column("FIX", lambda finding: finding.fix),
)
_COLOURS = {"ok": "green", "warning": "yellow", "error": "red"}
_VERDICT_COLOURS = {"PASS": "green", "FAIL": "red", "WARN": "yellow", "N/A": "dim"}


def as_data(finding: Finding) -> dict[str, str]:
    """Return a finding as JSON data."""
    return {"result": finding.level, "found": finding.what, "fix": finding.fix}


def machine(settings: Settings, format: str) -> bool:
    """Print the findings and return whether none is an error."""
    from wherry import check, daemons

    running = any(asyncio.run(daemons.running(settings)).values())
    found = check.findings(settings, running=running)
    if format == "table":  # each as soon as it is there
        return all([_print(finding) for finding in found])
    rows = list(found)
    output.show(rows, COLUMNS, format, as_data)
    return not any(finding.level == "error" for finding in rows)


def _print(finding: Finding) -> bool:
    what, *more = beside(f"{finding.level:8}", plain(finding.what))
    fix = _fix(finding) if finding.fix else []
    line = styled((what[:8], _COLOURS[finding.level]), "\n".join((what[8:], *more, *fix)))
    console.print(line, soft_wrap=True)
    return finding.level != "error"


def _fix(finding: Finding) -> list[str]:
    if finding.is_command:  # one line, to be pasted
        return [f"{' ' * 8}→ {plain(finding.fix)}"]
    return wrapped(f"→ {plain(finding.fix)}", 8)


def security(settings: Settings, format: str) -> bool:
    """Print every check of the benchmark and return whether none fails."""
    from wherry.security import gather, table

    results = list(table.results(asyncio.run(gather.facts(settings))))
    if format in ("json", "yaml"):
        print(output.dumped(report.as_data(results), format), end="")
    elif format == "wide":
        output.show(results, report.COLUMNS, format, report.row_data)
    else:
        for verdict, line in report.lines(results):
            console.print(line, style=_VERDICT_COLOURS.get(verdict), soft_wrap=True)
    return not any(found.verdict == "FAIL" for _, found in results)
