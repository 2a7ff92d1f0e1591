"""`wherry dev`: a cluster with simulated nodes in the foreground, as a user without root."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

NOBODY = 65534
MANIFEST = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, image: x}]}\n"


class Site:
    """A folder that an account without rights owns, and commands as this account."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "kubeconfig"
        (folder / "pod.yaml").write_text(MANIFEST)
        (folder / "tmp").mkdir()
        for path in (folder, folder / "pod.yaml", folder / "tmp"):
            os.chown(path, NOBODY, NOBODY)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "HOME": str(self.folder), "TMPDIR": str(self.folder / "tmp"), "COLUMNS": "80"}
        return subprocess.Popen(
            [sys.executable, "-m", "wherry.main", "dev", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            user=NOBODY,
            group=NOBODY,
            extra_groups=(),
        )

    def run(self, *arguments: str) -> tuple[int, str]:
        """Run a command that fails; return its status and output."""
        process = self.start(*arguments)
        output, _ = process.communicate(timeout=60)
        return process.returncode, output

    def kubectl(self, *arguments: str) -> str:
        command = ["kubectl", "--kubeconfig", str(self.config), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.fixture
def site() -> Iterator[Site]:
    with tempfile.TemporaryDirectory() as folder:  # pytest's folders are for root alone
        yield Site(Path(folder))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_cluster_serves_kubectl_until_a_signal_and_leaves_nothing(site: Site, number: signal.Signals) -> None:
    process = site.start("--nodes", "2", "--load", str(site.folder / "pod.yaml"), "--kubeconfig", str(site.config))
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline().strip() for _ in range(3)]
        assert lines[0] == f"objects applied from {site.folder}/pod.yaml: 1"
        assert lines[1].endswith(" with 2 simulated nodes; Ctrl-C ends it")
        assert lines[2] == f"export KUBECONFIG={site.config}"
        assert site.config.stat().st_mode & 0o777 == 0o600
        site.kubectl("wait", "pod/a", "--for=condition=Ready", "--timeout=30s")
        assert len(site.kubectl("get", "nodes", "-o", "name").splitlines()) == 2
    finally:
        process.send_signal(number)
        output, _ = process.communicate(timeout=30)
    assert (process.returncode, output) == (0, "")
    assert sorted(path.name for path in site.folder.iterdir() if path.suffix != ".kube") == ["pod.yaml", "tmp"]
    assert not list((site.folder / "tmp").iterdir())


def test_wrong_arguments_are_one_sentence(site: Site) -> None:
    site.config.write_text("mine")
    status, output = site.run("--kubeconfig", str(site.config))
    assert (status, "exists: remove it, or name another file" in output) == (1, True)
    assert site.config.read_text() == "mine"
    assert site.run("--load", "/no/such") == (1, "wherry: /no/such: no such file or folder\n")
    assert site.run("--kubeconfig", "/no/such/file") == (1, "wherry: /no/such/file: No such file or directory\n")
    (site.folder / "wrong.yaml").write_text("kind: Pod\n")
    status, output = site.run("--load", str(site.folder / "wrong.yaml"))
    assert (status, "wrong.yaml: an object without apiVersion" in output) == (1, True), output
    assert not list((site.folder / "tmp").iterdir())


def test_a_port_that_is_taken_is_named(site: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        status, output = site.run("--port", str(other.getsockname()[1]))
    assert status == 1 and "another process has it; choose another one" in output and "Traceback" not in output
