"""The history of a failed test: the pytest plugin keeps it, and `wherry dev --replay` shows it to kubectl."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from tests.contract.testing.test_plugin import run
from wherry.testing import Cluster, History

TESTS = """
def test_passes(kubernetes): pass

@pytest.mark.kubernetes(load=[deployment("web", 2)])
def test_fails(kubernetes):
    kubernetes.wait("deployment/web", "Available")
    kubernetes.delete("deployment/web")
    kubernetes.wait("deployment/web", "deleted")
    assert False
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The history of a test that fails."""
    folder = tmp_path_factory.mktemp("tests")
    status, output = run(folder, TESTS, "--kubernetes-history", "histories")
    files = list((folder / "histories").glob("*"))
    assert (status, [each.name for each in files]) == (1, ["test_it.py-test_fails.wherry"]), output
    assert re.search(r"history with \d+ changes; wherry dev --replay \S+test_it\.py-test_fails\.wherry", output)
    assert files[0].stat().st_mode & 0o777 == 0o600
    return files[0]


def test_a_history_has_who_did_what_and_the_objects_of_each_revision(file: Path) -> None:
    history = History.load(file)
    assert history.test == "test_it.py::test_fails"
    done = [
        (change.user, change.verb, change.type)
        for change in history.changes
        if change.object == "deployments/default/web"
    ]
    assert done[0] == ("kubernetes-admin", "patch", "ADDED")
    assert ("system:serviceaccount:kube-system:deployment-controller", "update", "MODIFIED") in done
    assert done[-1][2] == "DELETED"
    users = {change.user for change in history.changes if change.object.startswith("pods/default/web-")}
    assert {
        "system:serviceaccount:kube-system:replicaset-controller",
        "system:kube-scheduler",
        "system:node:node-1",
    } <= users
    available = next(
        revision
        for revision in range(history.revision, history.last)
        if history.objects_at(revision).get("deployments/default/web", {}).get("status", {}).get("availableReplicas")
        == 2
    )
    assert sum(name.startswith("pods/default/web-") for name in history.objects_at(available)) == 2
    assert "deployments/default/web" not in history.objects_at(history.last)


class Replayed:
    """`wherry dev --replay` with its commands."""

    def __init__(self, file: Path, config: Path) -> None:
        self.config = config
        command = [sys.executable, "-m", "wherry.main", "dev", "--replay", str(file), "--kubeconfig", str(config)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.head = [self.line() for _ in range(5)]

    def line(self) -> str:
        return self._pipe(self.process.stdout).readline().rstrip("\n")

    def command(self, text: str) -> str:
        """Send a command; return its first line."""
        pipe = self._pipe(self.process.stdin)
        pipe.write(text + "\n")
        pipe.flush()
        return self.line()

    def kubectl(self, *arguments: str) -> tuple[int, str]:
        command = ["kubectl", "--kubeconfig", str(self.config), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        return done.returncode, done.stdout + done.stderr

    @staticmethod
    def _pipe(pipe: IO[str] | None) -> IO[str]:
        assert pipe is not None
        return pipe


@pytest.fixture
def replayed(file: Path, tmp_path: Path) -> Iterator[Replayed]:
    found = Replayed(file, tmp_path / "kubeconfig")
    try:
        yield found
    finally:
        found.process.kill()
        found.process.communicate()


def test_kubectl_sees_the_cluster_at_each_revision(file: Path, replayed: Replayed) -> None:
    history = History.load(file)
    assert replayed.head[0] == f"test_it.py::test_fails: {len(history.changes)} changes"
    assert replayed.head[1].endswith("with the objects of a revision; Ctrl-C ends it")
    assert replayed.head[4].startswith(f"{history.last} ")
    assert "not found" in replayed.kubectl("get", "deployment", "web")[1]
    name = "deployments/default/web"
    first = next(change.revision for change in history.changes if change.object == name)
    assert replayed.command(str(first)).startswith(f"{first} ")
    status, output = replayed.kubectl("get", "deployment", "web", "-o", "jsonpath={.metadata.resourceVersion}")
    assert (status, output) == (0, str(first))
    assert replayed.command("p").startswith(f"{first - 1} ") or first - 1 == history.revision
    assert "not found" in replayed.kubectl("get", "deployment", "web")[1]
    gone = next(c.revision for c in history.changes if c.object == name and c.type == "DELETED")
    replayed.command(str(gone - 1))
    status, output = replayed.kubectl("get", "deployment", "web", "--no-headers")
    assert status == 0 and output.split()[:2] == ["web", "2/2"]
    assert re.fullmatch(r"\d{1,2}s", output.split()[-1]), "ages are those of the time"
    for arguments in (["delete", "deployment", "web"], ["create", "namespace", "x"]):
        status, output = replayed.kubectl(*arguments)
        assert status == 1 and "this is the history of a test: it cannot be changed" in output
    assert replayed.kubectl("auth", "can-i", "get", "pods") == (0, "yes\n")
    pod = replayed.kubectl("get", "pods", "-o", "name")[1].split()[0]
    assert "the nodes of a history do not run" in replayed.kubectl("logs", pod)[1]


def test_a_watch_sees_a_step_forward_and_a_signal_ends_all(file: Path, replayed: Replayed) -> None:
    history = History.load(file)
    first = next(c.revision for c in history.changes if c.object == "deployments/default/web")
    replayed.command(str(first - 1))
    command = ["kubectl", "--kubeconfig", str(replayed.config), "get", "deployments", "-o", "name", "--watch"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watch:
        try:
            replayed.command("n")
            assert watch.stdout is not None and watch.stdout.readline() == "deployment.apps/web\n"
        finally:
            watch.kill()
    replayed.process.send_signal(signal.SIGINT)
    output, _ = replayed.process.communicate(timeout=30)
    assert (replayed.process.returncode, output, replayed.config.exists()) == (0, "", False)


@pytest.mark.parametrize("input", ["q\n", "1\nl\nnonsense\nq\n"])
def test_commands_from_a_file_and_the_end(file: Path, input: str) -> None:
    command = [sys.executable, "-m", "wherry.main", "dev", "--replay", str(file)]
    done = subprocess.run(command, input=input, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and not done.stderr
    lines = done.stdout.splitlines()[5:]
    assert (lines == []) if input == "q\n" else lines[0].startswith("no revision 1: the history has ")


def test_a_file_that_is_no_history_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "cluster"
    with Cluster(nodes=0) as cluster:
        cluster.save(path)
    for arguments, status, message in (
        (["--replay", str(path)], 1, f"wherry: {path} is a saved cluster, not the history of a test\n"),
        (["--replay", str(path), "--load", "x"], 2, "wherry: --replay shows the objects of a history"),
    ):
        command = [sys.executable, "-m", "wherry.main", "dev", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env={"COLUMNS": "400"})
        assert done.returncode == status and (done.stdout + done.stderr).startswith(message)
