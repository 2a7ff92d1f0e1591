"""`wherry reset` beside another installation in the same network namespace, whose rules and links have the same names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.stopped_installation import install

REPOSITORY = Path(__file__).resolve().parents[2]
SCRIPT = """
wherry() { python -m wherry.main "$@"; echo "ended with $?"; ip -o link show cni0 | grep -o cni0; }
ip link add cni0 type bridge && mkfifo $TMP/input || exit
# It has the command line of another installation's process, and runs until its input ends.
(exec -a "$1" python -c 'import sys; sys.stdin.read()' "${@:2}") <$TMP/input &
exec 9>$TMP/input
until tr '\\0' ' ' </proc/$!/cmdline | grep -qF -- "$2"; do sleep 0.05; done
wherry reset --yes --prefix $COPY; wherry reset --yes --prefix $RUNNING
exec 9>&-
wait
"""
PROCESSES = {
    "agent": ["python", "wherry.roles", "agent", "--prefix", "{0}"],
    "proxy of an image": ["python", "/usr/bin/wherry", "proxy", "--prefix", "{0}"],
    "shim of a pod": ["/usr/bin/containerd-shim-runc-v2", "-namespace", "k8s.io", "-address", "{1}"],
}


@pytest.mark.parametrize("process", PROCESSES)
def test_nothing_is_taken_from_an_installation_that_runs_and_it_can_be_reset(tmp_path: Path, process: str) -> None:
    copy, running = install(tmp_path / "copy"), install(tmp_path / "running")
    words = [word.format(running.prefix, running.layout.containerd_socket) for word in PROCESSES[process]]
    done = subprocess.run(
        ["unshare", "--net", "--mount", "bash", "-c", SCRIPT, "bash", *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(REPOSITORY),
            "TMP": str(tmp_path),
            "COPY": copy.prefix,
            "RUNNING": running.prefix,
        },
    )
    assert f"the installation {running.prefix} runs in this network namespace" in done.stderr
    refused, allowed = done.stdout.split("ended with ")[1:]
    assert refused.startswith("1\ncni0\n") and "✓ remove files" in refused, done
    assert allowed == "0\n", done
    assert copy.layout.settings.exists() and not running.layout.settings.exists()
