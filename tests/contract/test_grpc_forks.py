"""Daemons run commands while they use gRPC, whose C core writes nothing to their logs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kube.grpc_fork_handlers import VARIABLE
from wherry.layout import Layout
from wherry.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
WATCHED = f"""
import os, runpy, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "grpc":
            os.write(1, os.environ.get("{VARIABLE}", "unset").encode())
            os._exit(0)

sys.meta_path.insert(0, Finder())
sys.argv[:] = sys.argv[1:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""
BUSY = """
import asyncio, sys
import uvloop
from kube import grpc_fork_handlers
if sys.argv[1] == "disabled":
    grpc_fork_handlers.disable()
import grpc.aio

async def main(socket):
    server = grpc.aio.server()
    server.add_insecure_port(socket)
    await server.start()
    async with grpc.aio.insecure_channel(socket) as channel:
        call = channel.unary_unary("/a/b")
        for _ in range(5):
            calls = asyncio.gather(*(call(b"") for _ in range(20)), return_exceptions=True)
            await asyncio.sleep(0)
            command = await asyncio.create_subprocess_exec("true")
            await command.wait()
            await calls
    await server.stop(0)

with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
    runner.run(main("unix:" + sys.argv[2]))
"""


def run(*argv: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    return subprocess.run(
        [sys.executable, "-c", *argv],
        env=environment | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_command_that_is_run_between_calls_leaves_no_line(tmp_path: Path) -> None:
    done = run(BUSY, "disabled", str(tmp_path / "socket"))
    assert (done.returncode, done.stdout) == (0, "")
    assert "fork" not in done.stderr
    if "fork" not in run(BUSY, "enabled", str(tmp_path / "other")).stderr:
        pytest.fail("this gRPC writes no lines about forks any more: kube/grpc_fork_handlers.py is not needed")


def test_the_agent_disables_the_handlers_before_it_imports_grpc(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n")
    (tmp_path / "kubeconfig").write_text("")
    done = run(WATCHED, "agent", f"--config={tmp_path / 'config.yaml'}", f"--kubeconfig={tmp_path / 'kubeconfig'}")
    assert done.stdout == "0", done.stderr


@pytest.mark.parametrize("role", ["agent", "server"])
def test_a_role_disables_the_handlers_before_it_imports_grpc(tmp_path: Path, role: str) -> None:
    settings = Settings(prefix=str(tmp_path), node_name="n", store="etcd", etcd_servers="http://127.0.0.1:1")
    Layout(tmp_path).settings.parent.mkdir(parents=True)
    settings.save()
    done = run(WATCHED, "wherry.roles", role, "--prefix", str(tmp_path))
    assert done.stdout == "0", done.stderr
