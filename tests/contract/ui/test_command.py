"""The command `wherry ui` as a process: its output, errors and end."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from wherry.testing import Cluster


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "TMPDIR": str(folder), "COLUMNS": "40", "PYTHONUNBUFFERED": "1"}
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "KUBECONFIG"):
        environment.pop(name, None)
    command = [sys.executable, "-m", "wherry.main", "ui", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_it_serves_until_a_signal_also_with_watches_and_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    with Cluster(nodes=0) as cluster:
        process = start(tmp_path, "--kubeconfig", str(cluster.kubeconfig))
        try:
            assert process.stdout is not None
            shown = [process.stdout.readline() for _ in range(3)]
            link = re.fullmatch(r"(http://127\.\d+\.\d+\.\d+:\d+)/#(\S{43})\n", shown[1])
            assert link, shown
            assert [path.stat().st_mode & 0o777 for path in tmp_path.iterdir()] == [0o700]
            headers = {"Origin": link[1], "Content-Type": "application/json"}
            body = json.dumps({"link": link[2]}).encode()
            with urllib.request.urlopen(
                urllib.request.Request(f"{link[1]}/session", body, headers), timeout=30
            ) as answer:
                cookie, token = answer.headers["Set-Cookie"].split(";")[0], json.load(answer)["token"]
            session = {"Cookie": cookie, "X-Wherry-Page": token}
            watch = urllib.request.Request(f"{link[1]}/watch?w=/api/v1/nodes", headers=session)
            with urllib.request.urlopen(watch, timeout=30) as answer:
                assert answer.status == 200
                process.send_signal(number)
                assert process.wait(15) == 0
            assert process.stdout.read() == "" and list(tmp_path.iterdir()) == []
        finally:
            process.kill()
            process.communicate()


def test_errors_are_one_sentence(tmp_path: Path) -> None:
    with Cluster(nodes=0) as cluster, socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        wrong = (
            (
                ["--kubeconfig", str(cluster.kubeconfig), "--localhost", "--port", str(port)],
                f"--port {port}: another process has it",
            ),
            (["--kubeconfig", str(tmp_path / "none")], "no such file"),
            (["--kubeconfig", str(cluster.kubeconfig), "--context", "x"], "context"),
        )
        for process, wanted in [(start(tmp_path, *arguments), wanted) for arguments, wanted in wrong]:
            output, _ = process.communicate(timeout=60)
            assert process.returncode == 1 and wanted in output and "Traceback" not in output
