"""Test programs of the Gateway API and of Ingress in a folder, and how they run against a cluster.

The folder that WHERRY_GATEWAY_API names (`scripts/test --gateway-api DIR`) holds finished programs in DIR/bin,
the sources of the same version in DIR/tree, and the features of the Ingress tests in DIR/features (docs/conformance.md).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conformance.upstream import CACHE
from tests.support.images import Image
from tests.support.machines import Machine

GIVEN = os.environ.get("WHERRY_GATEWAY_API", "")
REPORTS = CACHE / "gateway-api"
_ECHO = "registry.k8s.io/gateway-api/echo-basic"
_VERSIONS = ("v1.5.1", "v1.6.0-dev.2", "v1.6.0-dev.3")
_DNS = "registry.k8s.io/coredns/coredns:v1.12.2"
"""Image of a backend that no test of GATEWAY-HTTP calls."""
SUITE = (
    *("-test.run", "^TestConformance$", "-test.v", "-test.timeout", "30m"),
    *("-gateway-class", "wherry", "-conformance-profiles", "GATEWAY-HTTP", "-cleanup-base-resources=false"),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a program: its exit status, and the number of tests by PASS, FAIL and SKIP."""

    status: int
    counts: dict[str, int]
    failed: list[str]
    log: Path


def program(name: str) -> Path:
    """Return a program of the folder; skips the test if there is none."""
    path = Path(GIVEN) / "bin" / name
    if not os.access(path, os.X_OK):
        pytest.skip(f"{path} is missing")
    return path


def tree() -> Path:
    """Return the sources of the programs; skips the test if they are missing."""
    path = Path(GIVEN) / "tree"
    if not (path / "config/crd/standard").is_dir():
        pytest.skip(f"{path} holds no sources of the Gateway API")
    return path


def load(machines: Iterable[Machine]) -> None:
    """Load the images of the backends: all are the echo server."""
    echo = program("echo-basic").read_bytes()
    names = [*(f"{_ECHO}:{version}" for version in _VERSIONS), _DNS]
    made = [Image(name, entrypoint=["/echo-basic"], command=(), programs={"echo-basic": echo}) for name in names]
    for machine in machines:
        machine.load(*made)


def run(machine: Machine, name: str, log: str, *arguments: str, folder: Path | None = None) -> Outcome:
    """Run a test program on a machine of the cluster; its output stays in .cache/conformance/gateway-api."""
    REPORTS.mkdir(parents=True, exist_ok=True)
    path = REPORTS / f"{log}.log"
    kubectl = shutil.which("kubectl")
    assert kubectl, "kubectl is missing"
    settings = {**os.environ, "KUBECONFIG": str(machine.kubeconfig), "KUBECTL_DIR": str(Path(kubectl).parent)}
    with path.open("w") as file:
        argv = [*machine.host.enter, str(program(name).resolve()), *arguments]
        done = subprocess.run(argv, cwd=folder or REPORTS, stdout=file, stderr=file, env=settings, check=False)
    text = path.read_text(errors="replace")
    counts = {word: len(re.findall(rf"(?m)^ *--- {word}", text)) for word in ("PASS", "FAIL", "SKIP")}
    outcome = Outcome(done.returncode, counts, re.findall(r"(?m)^ *--- FAIL: (\S+)", text), path)
    print(f"\n{log}: {counts}")
    return outcome


def check(outcome: Outcome, at_least: int) -> None:
    """Fail if a test failed or too few ran."""
    assert not outcome.status and not outcome.failed, f"{outcome.failed}: see {outcome.log}"
    assert outcome.counts["PASS"] >= at_least, f"not all tests ran: see {outcome.log}"
