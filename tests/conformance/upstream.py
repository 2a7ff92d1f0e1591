"""Upstream's tests and daemons of one version: paths of its programs and sources.

The folder that WHERRY_KUBERNETES names (`scripts/test --conformance --kubernetes DIR`) holds them as upstream's own build
leaves them: programs in DIR/bin, sources in DIR/tree.
Without it Debian's v1.20 is built (debian_sources.py).
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache/conformance"
GIVEN = "WHERRY_KUBERNETES"
NEEDED = ("e2e.test", "ginkgo", "agnhost", "nnp", "kubectl")
"""Programs that a given folder must hold; it may have others (daemons, sample-apiserver, resource-consumer)."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """One version; `kept` is the folder of what is made of it: images and reports."""

    version: str
    binaries: Path
    sources: Path
    kept: Path

    @property
    def minor(self) -> int:
        return int(self.version.split(".")[1])

    def kubectl(self) -> str:
        """Return the kubectl that the tests call: its own, or the machine's."""
        own = self.binaries / "kubectl"
        return str(own) if own.exists() else shutil.which("kubectl") or "kubectl"

    def conformance_tests(self) -> list[str]:
        """Return the names of all conformance tests, which upstream keeps in a file."""
        listed = yaml.safe_load((self.sources / "test/conformance/testdata/conformance.yaml").read_text())
        return [test["codename"] for test in listed]


@functools.cache
def chosen() -> Upstream:
    """Return the version that tests run with; raises AssertionError if a given folder lacks something."""
    folder = os.environ.get(GIVEN)
    if folder is None:
        from tests.conformance import debian_sources

        return debian_sources.UPSTREAM
    return given(Path(folder))


def given(folder: Path) -> Upstream:
    """Return the version whose programs and sources are in a folder."""
    missing = [f"bin/{name}" for name in NEEDED if not os.access(folder / "bin" / name, os.X_OK)]
    if not (folder / "tree/test/conformance").is_dir():
        missing.append("tree/test/conformance")
    assert not missing, f"{folder} lacks {', '.join(missing)}"
    printed = run_tool([str(folder / "bin/kubectl"), "version", "--client", "--output=json"], folder)
    version = json.loads(printed)["clientVersion"]["gitVersion"]
    return Upstream(version, folder / "bin", folder / "tree", CACHE / version)


def run_tool(argv: list[str], folder: Path, settings: dict[str, str] | None = None) -> str:
    """Run a command in a folder and return what it printed; its failure shows that."""
    done = subprocess.run(
        argv, cwd=folder, env={**os.environ, **(settings or {})}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{argv[:3]} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout
