"""Ctrl-C in a run of pytest: the cluster ends with it, and leaves no process, port, thread or file."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.testing.test_plugin import ENV, HEAD, PLUGIN

TESTS = """
import time

def test_it(kubernetes, capsys):
    kubernetes.apply(deployment("web"))
    kubernetes.pods.script("*", Exit(1), optional=True)
    kubeconfig = kubernetes.kubeconfig
    with capsys.disabled():
        print("url", kubernetes.url, kubeconfig, flush=True)
    CODE
"""
CONFTEST = """
import os, pytest, tempfile, threading

made, make = [], tempfile.mkdtemp

def mkdtemp(*arguments, **options):
    made.append(make(*arguments, **options))
    return made[-1]

tempfile.mkdtemp = mkdtemp

@pytest.fixture(autouse=True)
def announced(capsys):
    with capsys.disabled():
        print("begins", flush=True)

def pytest_unconfigure():
    print("left:", sorted({each.name for each in threading.enumerate()} - IDLE), [f for f in made if os.path.exists(f)])

IDLE = {"MainThread", "imports_0"}  # the latter is a pool of the process, which imports modules
"""
SITUATIONS = {
    "a wait of the cluster": "kubernetes.wait('deployment/web', 'status.replicas=7', timeout=300)",
    "code of the test": "time.sleep(300)",
    "a script": "kubernetes.pods.script('late', lambda start: time.sleep(2) or Exit(1))\n"
    "    kubernetes.apply({'apiVersion': 'v1', 'kind': 'Pod', 'metadata': {'name': 'late'},"
    " 'spec': {'containers': [{'name': 'c', 'image': 'i'}]}})\n"
    "    kubernetes.wait('pod/late', 'Ready', timeout=300)",
}


class Run:
    """A run of pytest in a session of its own."""

    def __init__(self, folder: Path, code: str) -> None:
        (folder / "test_it.py").write_text(HEAD + code)
        (folder / "pytest.ini").write_text("[pytest]\n")
        (folder / "conftest.py").write_text(CONFTEST)
        plugins = [*PLUGIN, "-p", "no:cacheprovider"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-q", *plugins],
            cwd=folder,
            env=ENV,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def line(self, pattern: str) -> re.Match[str]:
        """Wait for a line of the output."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if match := re.search(pattern, line):
                return match
        raise AssertionError("the test has not started")

    def started(self) -> tuple[str, int, Path]:
        """Wait for the line that the test prints; return address, port and the folder of its kubeconfig."""
        match = self.line(r"url https://([\d.]+):(\d+) (\S+)")
        return match[1], int(match[2]), Path(match[3]).parent

    def interrupt(self) -> str:
        """Send SIGINT to all its processes, as a terminal does; return the output."""
        os.killpg(self.process.pid, signal.SIGINT)
        return self.process.communicate(timeout=60)[0]

    def processes(self) -> list[str]:
        """Return what runs in its session."""
        command = ["ps", "-o", "args=", "--sid", str(self.process.pid)]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()


@pytest.fixture
def runs() -> Iterator[list[Run]]:
    found: list[Run] = []
    yield found
    for each in found:
        each.process.kill()
        each.process.communicate()


@pytest.mark.parametrize("situation", SITUATIONS)
def test_an_interrupt_leaves_nothing_behind(tmp_path: Path, runs: list[Run], situation: str) -> None:
    run = Run(tmp_path, TESTS.replace("CODE", SITUATIONS[situation]))
    runs.append(run)
    host, port, folder = run.started()
    assert folder.is_dir()
    with socket.create_connection((host, port)):
        output = run.interrupt()
    assert run.process.returncode == pytest.ExitCode.INTERRUPTED, output
    assert "KeyboardInterrupt" in output and "Error" not in output.replace("KeyboardInterrupt", ""), output
    assert "left: [] []" in output
    assert not run.processes()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, port))
    assert not folder.exists()


@pytest.mark.parametrize("seconds", [0.05, 0.4, 0.8, 1.2])
def test_an_interrupt_while_the_cluster_starts_leaves_nothing_behind(
    tmp_path: Path, runs: list[Run], seconds: float
) -> None:
    run = Run(tmp_path, "def test_it(kubernetes): pass\n")
    runs.append(run)
    run.line("begins")
    time.sleep(seconds)  # any moment of the start will do, and one after it
    output = run.interrupt()
    # The last: pytest had finished, and its own clean-up was interrupted.
    ends = (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.OK, -signal.SIGINT)
    assert run.process.returncode in ends, output
    assert "left: [] []" in output and not run.processes(), output
