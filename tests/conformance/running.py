"""Runs a selection of upstream's tests against a cluster, and reads what became of them."""

from __future__ import annotations

import contextlib
import shutil
import signal
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance import images, upstream
from tests.support.cluster import Cluster

REPORTS = upstream.CACHE / "reports"
KNOWN: dict[str, str] = tomllib.loads(Path(__file__).with_name("known.toml").read_text())["changed"]
"""What is changed since, by a part of the test's name."""


def prepare() -> Path:
    """Build the tests and their images, if they are not there; return the images' archive."""
    for tool in ("debootstrap", "/usr/lib/go-1.19/bin/go"):
        if not shutil.which(tool):
            pytest.fail(f"{tool} is missing: scripts/test --conformance installs it")
    upstream.build()
    archive = upstream.CACHE / "images.tar"
    if not archive.exists():
        images.archive(archive.with_suffix(".part")).rename(archive)
    return archive


@contextlib.contextmanager
def named_secrets(cluster: Cluster) -> Iterator[None]:
    """Let each service account name a Secret meanwhile."""
    argv = ("env", f"PYTHONPATH={upstream.ROOT}", sys.executable, "-m", "tests.conformance.secrets")
    accounts = cluster.host.popen(*argv, str(cluster.kubeconfig), stdout=None)
    try:
        yield
    finally:
        accounts.send_signal(signal.SIGTERM)
        accounts.wait()


def run(
    cluster: Cluster, reports: Path, focus: str, skip: str, processes: int, nodes: int = 1
) -> tuple[list[str], list[str]]:
    """Run what is selected and return the names of what passed and of what failed."""
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir(parents=True)
    ginkgo = [str(upstream.BINARIES / "ginkgo"), f"-nodes={processes}", "-noColor", f"-focus={focus}", f"-skip={skip}"]
    settings = [
        "--provider=local",
        f"--kubeconfig={cluster.kubeconfig}",
        f"--num-nodes={nodes}",
        f"--kubectl-path={shutil.which('kubectl')}",
        f"--repo-root={upstream.SOURCE}",
        f"--report-dir={reports}",
        "--disable-log-dump",
    ]
    home = {"KUBECONFIG": str(cluster.kubeconfig), "HOME": str(reports)}
    with reports.with_suffix(".log").open("w") as log:
        argv = [
            "env",
            *(f"{k}={v}" for k, v in home.items()),
            *ginkgo,
            str(upstream.BINARIES / "e2e.test"),
            "--",
            *settings,
        ]
        running = cluster.host.popen(*argv, stdout=log.fileno())
        try:
            running.wait()
        finally:
            running.send_signal(signal.SIGINT)
            running.wait()
    passed: list[str] = []
    failed: list[str] = []
    for report in reports.glob("junit*.xml"):
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            if case.find("skipped") is None:
                (passed if case.find("failure") is None else failed).append(case.get("name", ""))
    return passed, failed
