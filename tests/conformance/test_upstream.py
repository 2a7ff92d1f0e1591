"""Upstream's conformance tests, as the program that upstream made of them, against a cluster of two machines.

`sudo scripts/test --conformance`; `-- -k serial` runs the quarter of them that want the cluster to themselves. Their output and
reports stay in .cache/conformance/reports.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance import images, upstream
from tests.support.machines import Machines, at_once, machines

REPORTS = upstream.CACHE / "reports"
KNOWN: dict[str, str] = tomllib.loads(Path(__file__).with_name("known.toml").read_text())["changed"]
TESTS = 311
"""Upstream's v1.20 has that many conformance tests."""


@pytest.fixture(scope="session")
def two() -> Iterator[Machines]:
    """Two machines with the tests' images."""
    for tool in ("debootstrap", "/usr/lib/go-1.19/bin/go"):
        if not shutil.which(tool):
            pytest.fail(f"{tool} is missing: scripts/test --conformance installs it")
    upstream.build()
    archive = upstream.CACHE / "images.tar"
    if not archive.exists():
        images.archive(archive.with_suffix(".part")).rename(archive)
    with machines(f"wherry-c{os.getpid()}", (0, 0)) as made:
        at_once(lambda machine: machine.wherry("image", "load", str(archive), timeout=600), made.all)
        first = made.first
        argv = ("env", f"PYTHONPATH={upstream.ROOT}", sys.executable, "-m", "tests.conformance.secrets")
        accounts = first.host.popen(*argv, str(first.kubeconfig), stdout=None)
        try:
            yield made
        finally:
            accounts.send_signal(signal.SIGTERM)
            accounts.wait()


@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    ("group", "focus", "skip", "processes"),
    [
        ("parallel", r"\[Conformance\]", r"\[Serial\]|\[Disruptive\]", 4),
        ("serial", r"\[Serial\].*\[Conformance\]|\[Disruptive\].*\[Conformance\]", "", 1),
    ],
)
def test_upstreams_tests_pass(two: Machines, group: str, focus: str, skip: str, processes: int) -> None:
    passed, failed = run(two, REPORTS / group, focus, skip, processes)
    print(f"{group}: {len(passed)} passed, {len(failed)} failed")
    assert len(passed) + len(failed) > TESTS // 20, "the selection is empty, or the program did not get to the tests"
    unexpected = [name for name in failed if not any(known in name for known in KNOWN)]
    assert not unexpected, f"see {REPORTS / group}.log"


def run(cluster: Machines, reports: Path, focus: str, skip: str, processes: int) -> tuple[list[str], list[str]]:
    """Run what is selected and return the names of what passed and of what failed."""
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir(parents=True)
    first = cluster.first
    ginkgo = [str(upstream.BINARIES / "ginkgo"), f"-nodes={processes}", "-noColor", f"-focus={focus}", f"-skip={skip}"]
    settings = [
        "--provider=local",
        f"--kubeconfig={first.kubeconfig}",
        f"--num-nodes={len(cluster)}",
        f"--kubectl-path={shutil.which('kubectl')}",
        f"--repo-root={upstream.SOURCE}",
        f"--report-dir={reports}",
        "--disable-log-dump",
    ]
    home = {"KUBECONFIG": str(first.kubeconfig), "HOME": str(reports)}
    with reports.with_suffix(".log").open("w") as log:
        argv = [
            "env",
            *(f"{k}={v}" for k, v in home.items()),
            *ginkgo,
            str(upstream.BINARIES / "e2e.test"),
            "--",
            *settings,
        ]
        running = first.host.popen(*argv, stdout=log.fileno())
        try:
            running.wait()
        finally:
            running.send_signal(signal.SIGINT)
    passed: list[str] = []
    failed: list[str] = []
    for report in reports.glob("junit*.xml"):
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            if case.find("skipped") is None:
                (passed if case.find("failure") is None else failed).append(case.get("name", ""))
    return passed, failed
