"""Runs a selection of upstream's tests against a cluster, and says what failed that is not known to."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.conformance import debian_sources, ginkgo, images
from tests.conformance.ginkgo import Result, Selection
from tests.conformance.upstream import GIVEN, ROOT, Upstream, chosen
from tests.support.cluster import Cluster

FOCUS = os.environ.get("WHERRY_CONFORMANCE_FOCUS", "")
"""Regular expression of the names of tests to run, beyond conformance or with exchanged daemons; the whole group if empty."""
GROUPS = {
    "parallel": Selection(r"\[Conformance\]", r"\[Serial\]|\[Disruptive\]"),
    "serial": Selection(r"(\[Serial\]|\[Disruptive\]).*\[Conformance\]|\[Conformance\].*(\[Serial\]|\[Disruptive\])"),
    # Neither a cloud nor hardware, drivers of volumes, or features that are off by default.
    "beyond": Selection(
        FOCUS or r"\[sig-(api-machinery|apps|auth|cli|instrumentation|network|node|scheduling|storage)\]",
        r"In-tree Volumes|CSI Volumes",
        "!Conformance && !Serial && !Disruptive && !Slow && !Flaky && !DRA && !/OffByDefault|Alpha/"
        " && !/^Feature:(Windows|SELinux|VolumeSnapshot|volumegroup|snapshotmetadata|LoadBalancer|Cluster|GPU|GKE|Upgrade"
        "|.*Downgrade|.*Upgrade|Reboot|HAMaster|KubeProxy|Networking-(IPv6|Performance)|NodeProblemDetector|RegularResource"
        "|ExperimentalResource|KubeDNSAutoscaler|IPv6DualStack|SCTP|VolumeSourceXFS|Flexvolumes|StorageProvider"
        "|CloudProvider|Kind|KubeletCredentialProviders|Ingress|DynamicResource|NodeLogQuery|UserNamespaces|HostAccess"
        "|Stateful|VolumeAttributesClass|DownwardAPIHugePages)/",
    ),
}
PROCESSES = int(os.environ.get("WHERRY_CONFORMANCE_PROCESSES", "4"))
"""Tests at once; serial ones run alone."""


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
    with writing(cluster, "secrets"):
        yield


@contextlib.contextmanager
def writing(cluster: Cluster, module: str) -> Iterator[None]:
    """Let a module of this package write objects to the cluster until the block ends."""
    argv = ("env", f"PYTHONPATH={ROOT}", sys.executable, "-m", f"tests.conformance.{module}", str(cluster.kubeconfig))
    process = cluster.host.popen(*argv, stdout=None)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def run(cluster: Cluster, name: str, selection: Selection, processes: int = PROCESSES, nodes: int = 1) -> list[Result]:
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
        # The tests replace /var/lib/kubelet/ in a driver's manifest several times, also in what they inserted; not with //.
        f"--kubelet-root-dir={cluster.prefix}/var//lib/kubelet",
        f"--repo-root={upstream.sources}",
        f"--report-dir={reports}",
        "--disable-log-dump",
    ]
    argv = [
        *("env", f"KUBECONFIG={cluster.kubeconfig}", f"HOME={reports}"),
        *ginkgo.command(upstream, selection, processes, reports),
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
