"""The program that runs upstream's tests: its options and reports, which changed between its versions 1 and 2.

Up to v1.23 upstream's tests are run by ginkgo 1, later ones by ginkgo 2.
"""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.conformance.upstream import Upstream

_NOT_RUN = {"skipped", "pending"}


@dataclass(frozen=True, slots=True)
class Result:
    """Result of one test; `message` is the first of its failure."""

    name: str
    passed: bool
    seconds: float = 0.0
    message: str = ""

    @property
    def sig(self) -> str:
        """The group that a test belongs to, as its name begins with it."""
        found = re.match(r"\[sig-([a-z-]+)\]", self.name)
        return found[1] if found else "others"


@dataclass(frozen=True, slots=True)
class Selection:
    """Tests to run: what their names contain, what not (regular expressions), and a filter of their labels (ginkgo 2)."""

    focus: str
    skip: str = ""
    labels: str = ""


def command(upstream: Upstream, selection: Selection, processes: int, reports: Path) -> list[str]:
    """Return the command that runs the selected tests, without the tests' own options."""
    program, tests = str(upstream.binaries / "ginkgo"), str(upstream.binaries / "e2e.test")
    focus, skip = selection.focus, selection.skip
    if upstream.minor < 24:
        return [program, f"-nodes={processes}", "-noColor", f"-focus={focus}", f"-skip={skip}", tests, "--"]
    options = {"procs": str(processes), "focus": focus, "skip": skip, "label-filter": selection.labels}
    selected = [f"--{name}={value}" for name, value in options.items() if value]
    report = ["--timeout=4h", "--no-color", f"--output-dir={reports}", "--json-report=report.json"]
    return [program, *selected, *report, tests, "--"]


def read(reports: Path) -> list[Result]:
    """Return what became of each test that ran, from the reports in a folder."""
    found = reports / "report.json"
    return list(_of_json(found) if found.exists() else _of_junit(reports))


def _of_json(path: Path) -> Iterable[Result]:
    for suite in json.loads(path.read_text()):
        for test in suite["SpecReports"] or []:
            if test["LeafNodeType"] == "It" and test["State"] not in _NOT_RUN:
                name = " ".join([*(test["ContainerHierarchyTexts"] or []), test["LeafNodeText"]])
                message = test.get("Failure", {}).get("Message", "")
                yield Result(name, test["State"] == "passed", test["RunTime"] / 1e9, message)


def _of_junit(reports: Path) -> Iterable[Result]:
    for report in reports.glob("junit*.xml"):
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            if case.find("skipped") is None:
                failure = case.find("failure")
                message = "" if failure is None else failure.text or ""
                yield Result(case.get("name", ""), failure is None, float(case.get("time", 0)), message)


def table(results: Iterable[Result]) -> str:
    """Return how many passed and failed, a line a sig, as Markdown."""
    count: dict[str, Counter[bool]] = defaultdict(Counter)
    for result in results:
        count[result.sig][result.passed] += 1
    rows = [f"| {sig} | {passed[True]} | {passed[False] or ''} |" for sig, passed in sorted(count.items())]
    total = sum(count.values(), Counter[bool]())
    return "\n".join(
        ["| sig | passed | failed |", "| --- | --- | --- |", *rows, f"| together | {total[True]} | {total[False]} |"]
    )
