"""Runs a selection of upstream's tests against a cluster, and says what failed that is not known to."""

from __future__ import annotations

import contextlib
import shutil
import signal
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.conformance import debian_sources, ginkgo, images
from tests.conformance.ginkgo import Result
from tests.conformance.upstream import GIVEN, ROOT, Upstream, chosen
from tests.support.cluster import Cluster

PARALLEL = (r"\[Conformance\]", r"\[Serial\]|\[Disruptive\]")
SERIAL = (r"(\[Serial\]|\[Disruptive\]).*\[Conformance\]|\[Conformance\].*(\[Serial\]|\[Disruptive\])", "")
"""Which tests: what their names contain, and what not."""


def programs(*, daemons: bool = False) -> Upstream:
    """Return the version that tests run with, and build what is not there of Debian's."""
    upstream = chosen()
    if upstream is debian_sources.UPSTREAM:
        if not shutil.which("/usr/lib/go-1.19/bin/go"):
            pytest.fail(f"Go is missing: scripts/test --conformance installs it, if {GIVEN} is not set")
        debian_sources.build()
        if daemons:
            debian_sources.build_daemons()
    return upstream


def prepare(*, daemons: bool = False) -> tuple[Upstream, Path]:
    """Return the version that tests run with and the archive of its images; both are made where they are not there."""
    upstream = programs(daemons=daemons)
    if not shutil.which("debootstrap"):
        pytest.fail("debootstrap is missing: scripts/test --conformance installs it")
    return upstream, images.archive(upstream)


def unexpected(upstream: Upstream, results: Iterable[Result]) -> list[str]:
    """Return the names of the tests that failed and are not among the known ones of that version."""
    listed = tomllib.loads(Path(__file__).with_name("known.toml").read_text())
    known: dict[str, str] = listed.get(f"v1.{upstream.minor}", {})
    return [test.name for test in results if not test.passed and not any(part in test.name for part in known)]


@contextlib.contextmanager
def named_secrets(cluster: Cluster) -> Iterator[None]:
    """Let each service account name a Secret meanwhile, which tests of up to v1.23 wait for."""
    if chosen().minor > 23:
        yield
        return
    argv = ("env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "tests.conformance.secrets")
    accounts = cluster.host.popen(*argv, str(cluster.kubeconfig), stdout=None)
    try:
        yield
    finally:
        accounts.send_signal(signal.SIGTERM)
        accounts.wait()


def run(cluster: Cluster, name: str, focus: str, skip: str, processes: int, nodes: int = 1) -> list[Result]:
    """Run what is selected and return what became of it; output and reports are kept as reports/NAME.log and reports/NAME."""
    upstream = chosen()
    reports = upstream.kept / "reports" / name
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir(parents=True)
    settings = [
        "--provider=local",
        f"--kubeconfig={cluster.kubeconfig}",
        f"--num-nodes={nodes}",
        f"--kubectl-path={upstream.kubectl()}",
        f"--kubelet-root-dir={cluster.prefix}/var/lib/kubelet",
        f"--repo-root={upstream.sources}",
        f"--report-dir={reports}",
        "--disable-log-dump",
    ]
    argv = [
        *("env", f"KUBECONFIG={cluster.kubeconfig}", f"HOME={reports}"),
        *ginkgo.command(upstream, focus, skip, processes, reports),
        *settings,
    ]
    with reports.with_suffix(".log").open("w") as log:
        running = cluster.host.popen(*argv, stdout=log.fileno())
        try:
            running.wait()
        finally:
            running.send_signal(signal.SIGINT)
            running.wait()
    results = ginkgo.read(reports)
    print(f"\n{name}, {upstream.version}:\n{ginkgo.table(results)}")
    return results


def log_of(name: str) -> Path:
    """Return the file with the output of a run."""
    return chosen().kept / "reports" / f"{name}.log"
