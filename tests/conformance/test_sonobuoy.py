"""Sonobuoy, unmodified: its aggregator and workers run plugins on two machines, and its commands return the results.

    sudo scripts/test --sonobuoy PROGRAM

PROGRAM is the static program `sonobuoy`; the image of its aggregator and workers is made from it. Plugins use busybox.
"""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.images import Image
from tests.support.machines import Machines, machines
from tests.support.sonobuoy import plugins

GIVEN = os.environ.get("WHERRY_SONOBUOY", "")
IMAGE = "wherry.test/sonobuoy:1"
OPTIONS = (
    *("--sonobuoy-image", IMAGE, "--image-pull-policy", "Never", "--kubernetes-version", "ignore"),
    "--skip-preflight=dnscheck",  # it searches for pods of cluster DNS, and Wherry's nodes answer DNS without pods
)
ARCHIVE = "results.tar.gz"
pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(not GIVEN, reason="WHERRY_SONOBUOY names no program (scripts/test --sonobuoy)"),
]


@pytest.fixture(scope="module")
def two() -> Iterator[Machines]:
    program = Path(GIVEN).read_bytes()
    with machines(f"wherry-b{os.getpid()}", (0, 0)) as made:
        for machine in made:
            machine.load(Image(IMAGE, command=("/sonobuoy",), programs={"sonobuoy": program}))
        yield made


def sonobuoy(two: Machines, folder: Path, *arguments: str, check: bool = True) -> str:
    """Run a command in a folder and return what it printed; its log is in the failure."""
    argv = [*two.first.host.enter, GIVEN, *arguments]
    settings = {**os.environ, "KUBECONFIG": str(two.first.kubeconfig)}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=600, check=False, cwd=folder, env=settings)
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def started(two: Machines, tmp_path: Path) -> Iterator[Path]:
    """A run of all plugins, and the folder with their definitions; `sonobuoy delete` deletes it."""
    options = list(OPTIONS)
    for name, definition in plugins.definitions().items():
        path = tmp_path / f"{name}.yaml"
        path.write_text(json.dumps(definition))
        options += ["--plugin", str(path)]
    try:
        sonobuoy(two, tmp_path, "run", *options, "--wait=5", "--wait-output", "silent")
        yield tmp_path
    finally:
        sonobuoy(two, tmp_path, "delete", "--wait=2")
    left = two.first.get("clusterroles,clusterrolebindings,namespaces", "-l", "component=sonobuoy")["items"]
    assert not left and two.first.kubectl("get", "namespace", "sonobuoy", check=False).returncode


def test_sonobuoys_aggregator_gets_the_results_of_its_workers(two: Machines, started: Path) -> None:
    nodes = [machine.node for machine in two]
    plugins.check_status(json.loads(sonobuoy(two, started, "status", "--json")), nodes)
    assert "no-exit was specified" in sonobuoy(two, started, "logs")
    sonobuoy(two, started, "retrieve", "--filename", ARCHIVE)
    with tarfile.open(started / ARCHIVE) as tar:
        files = {each.name: tar.extractfile(each) for each in tar.getmembers() if each.isfile()}
        texts = {name: file.read().decode(errors="replace") for name, file in files.items() if file is not None}
    plugins.check_reports(texts, nodes)
    listed = json.loads(texts["resources/cluster/core_v1_nodes.json"])["items"]
    assert sorted(each["metadata"]["name"] for each in listed) == nodes, "the aggregator queries the cluster"
    assert {f"hosts/{node}/healthz.json" for node in nodes} <= texts.keys(), "and the kubelets through the API server"
    found = sonobuoy(two, started, "results", ARCHIVE, "--plugin", "each-node")
    assert "Status: passed" in found and f"Total: {len(nodes)}" in found
