"""Processes that the command starts as root."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from wherry import daemons, units
from wherry.errors import WherryError
from wherry.settings import Settings

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("module", ["wherry.supervisor", "wherry.roles", "wherry.allocator"])
def test_daemons_run_no_modules_of_the_current_folder(tmp_path: Path, module: str) -> None:
    for name in ("signal", "json", "asyncio", "argparse"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a module of the current folder was run')")
    argv = [*daemons.PYTHON, module, "/nowhere"]
    done = subprocess.run(
        argv, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0 and "current folder" not in done.stderr, done.stderr


@pytest.fixture
async def orphaned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Settings, list[int]]]:
    """Run two daemons whose supervisor was killed; with their process IDs."""
    lines = {name: ["/bin/sleep", f"{number}.{os.getpid()}"] for number, name in enumerate(("control", "agent"), 7001)}
    monkeypatch.setattr(daemons, "uses_systemd", lambda settings: False)
    monkeypatch.setattr(daemons, "command_lines", lambda settings: lines)
    settings = Settings(prefix=str(tmp_path), node_name="n")
    await daemons.start(settings)
    pids = await running(settings)
    os.kill(daemons.supervisor_pid(settings), signal.SIGKILL)
    while daemons.supervisor_pid(settings):
        await asyncio.sleep(0.01)
    try:
        yield settings, pids
    finally:
        await daemons.stop(settings)
        for pid in pids:
            assert not daemons._runs(pid, "")


async def running(settings: Settings) -> list[int]:
    async with asyncio.timeout(20):
        while not all(found := (await daemons.running(settings)).values()):
            await asyncio.sleep(0.02)
    return sorted(found)


async def test_daemons_of_a_supervisor_that_was_killed_are_stopped(orphaned: tuple[Settings, list[int]]) -> None:
    settings, pids = orphaned
    assert await daemons.stop(settings)
    assert not any(daemons._runs(pid, "") for pid in pids)
    assert not await daemons.stop(settings)


async def test_daemons_of_a_supervisor_that_was_killed_end_before_others_start(
    orphaned: tuple[Settings, list[int]],
) -> None:
    settings, pids = orphaned
    daemons.restart_pending_file(settings).touch()
    await daemons.start(settings)
    assert not daemons.restart_pending_file(settings).exists()
    async with asyncio.timeout(20):
        while set(await running(settings)) & set(pids):
            await asyncio.sleep(0.02)
    assert not any(daemons._runs(pid, "") for pid in pids)


async def test_a_process_that_has_got_the_number_of_a_daemon_is_left_alone(
    orphaned: tuple[Settings, list[int]],
) -> None:
    settings, _ = orphaned
    other = await asyncio.create_subprocess_exec("/bin/sleep", "60")
    try:
        await daemons.stop(settings)
        (settings.layout.run / "agent.pid").write_text(f"{other.pid}\n")
        assert not await daemons.stop(settings)
        assert other.returncode is None
    finally:
        other.kill()
        await other.wait()


async def test_the_supervisor_starts_daemons_with_a_replaced_kubeconfig_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = {name: ["/bin/sleep", f"{number}.{os.getpid()}"] for number, name in enumerate(("control", "agent"), 7004)}
    monkeypatch.setattr(daemons, "uses_systemd", lambda settings: False)
    monkeypatch.setattr(daemons, "command_lines", lambda settings: lines)
    settings = Settings(prefix=str(tmp_path), node_name="n")
    await daemons.start(settings)
    try:
        await running(settings)
        before = await daemons.running(settings)
        assert await daemons.restart_stale(settings) == []
        daemons.restart_pending_file(settings).touch()
        assert await daemons.restart_stale(settings) == ["agent"]
        async with asyncio.timeout(20):
            while (after := await daemons.running(settings))["agent"] in (0, before["agent"]):
                await asyncio.sleep(0.02)
        assert after["control"] == before["control"] and not daemons.restart_pending_file(settings).exists()
        daemons.restart_pending_file(settings).touch()
    finally:
        await daemons.stop(settings)
    assert not daemons.restart_pending_file(settings).exists(), "the next ones read the files when they start"


async def test_containerd_is_restarted_for_a_replaced_configuration_before_the_command_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = {
        name: ["/bin/sleep", f"{number}.{os.getpid()}"] for number, name in enumerate(("containerd", "agent"), 7006)
    }
    monkeypatch.setattr(daemons, "uses_systemd", lambda settings: False)
    monkeypatch.setattr(daemons, "command_lines", lambda settings: lines)
    settings = Settings(prefix=str(tmp_path), node_name="n")
    pending = daemons.containerd_pending_file(settings)
    settings.layout.run.mkdir(parents=True)
    pending.touch()
    await daemons.start(settings)
    try:
        assert not pending.exists(), "one that starts reads the new file"
        await running(settings)
        before = await daemons.running(settings)
        await daemons.restart_containerd(settings)
        assert await daemons.running(settings) == before
        pending.touch()
        await daemons.start(settings)
        assert pending.exists(), "a second start leaves the one that runs"
        await daemons.restart_containerd(settings)
        after = await daemons.running(settings)
        assert after["containerd"] not in (0, before["containerd"]) and after["agent"] == before["agent"]
        assert not pending.exists()
        pending.touch()
    finally:
        await daemons.stop(settings)
    assert not pending.exists()


async def test_commands_at_the_same_time_start_one_supervisor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = {"control": ["/bin/sleep", f"7003.{os.getpid()}"]}
    monkeypatch.setattr(daemons, "uses_systemd", lambda settings: False)
    monkeypatch.setattr(daemons, "command_lines", lambda settings: lines)
    settings, spawn, spawned = Settings(prefix=str(tmp_path), node_name="n"), os.posix_spawn, list[int]()

    def counted(*args: Any, **options: Any) -> int:
        spawned.append(spawn(*args, **options))
        return spawned[-1]

    monkeypatch.setattr(os, "posix_spawn", counted)
    try:
        await asyncio.gather(*(daemons.start(settings) for _ in range(4)))
        assert [daemons.supervisor_pid(settings)] == spawned
        pids = await running(settings)
        # One that is started all the same, for the file with the process ID was lost, leaves the daemons alone.
        plan = settings.layout.run / "daemons.json"
        second = await asyncio.create_subprocess_exec(
            *daemons.PYTHON, "wherry.supervisor", str(plan), stderr=asyncio.subprocess.PIPE
        )
        async with asyncio.timeout(20):
            _, printed = await second.communicate()
        assert second.returncode == 1 and b"another one runs these daemons" in printed
        assert [daemons.supervisor_pid(settings)] == spawned and await running(settings) == pids
        # Neither a command that finds no process ID, nor one that stops, mistakes that for none that runs.
        (settings.layout.run / "supervisor.pid").unlink()
        await daemons.start(settings)
        assert [daemons.supervisor_pid(settings)] == spawned and await running(settings) == pids
        (settings.layout.run / "supervisor.lock").write_text("")
        await daemons.start(settings)
        assert len(spawned) == 1 and await running(settings) == pids
        with pytest.raises(WherryError, match=r"process ID was lost: end the process that `fuser .*supervisor\.lock`"):
            await daemons.stop(settings)
        assert await running(settings) == pids
    finally:
        for pid in spawned:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            while daemons._runs(pid, "wherry.supervisor"):
                await asyncio.sleep(0.01)
        await daemons.stop(settings)


async def test_a_start_waits_for_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = "import signal, time\nsignal.signal(15, lambda *_: (time.sleep(1), exit()))\nwhile True: time.sleep(1)"
    lines = {"agent": [sys.executable, "-c", f"{slow} # {os.getpid()}"]}
    monkeypatch.setattr(daemons, "uses_systemd", lambda settings: False)
    monkeypatch.setattr(daemons, "command_lines", lambda settings: lines)
    settings = Settings(prefix=str(tmp_path), node_name="n")
    await daemons.start(settings)
    try:
        [agent] = await running(settings)
        first, kill, stopping = daemons.supervisor_pid(settings), os.kill, asyncio.Event()

        def noted(pid: int, number: int) -> None:
            kill(pid, number)
            stopping.set()

        monkeypatch.setattr(os, "kill", noted)
        stop = asyncio.create_task(daemons.stop(settings))
        await asyncio.wait_for(stopping.wait(), 20)
        await daemons.start(settings)
        assert await stop
        assert daemons.supervisor_pid(settings) not in (0, first) and await running(settings) != [agent]
    finally:
        await daemons.stop(settings)


@pytest.mark.parametrize("systemd", [False, True])
async def test_daemons_that_start_have_no_restart_pending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, systemd: bool
) -> None:
    pids = {"agent": 0, "control": 7}

    async def started(settings: Settings, names: list[str], containerd: str = "") -> None:
        pids["agent"] = 8

    async def main_pid(daemon: str) -> int:
        return pids[daemon]

    monkeypatch.setattr(units, "start", started)
    monkeypatch.setattr(units, "main_pid", main_pid)
    lines = {"agent": ["/bin/sleep", f"7005.{os.getpid()}"], "control": ["/bin/sleep", f"7006.{os.getpid()}"]}
    monkeypatch.setattr(daemons, "uses_systemd", lambda settings: systemd)
    monkeypatch.setattr(daemons, "command_lines", lambda settings: lines)
    settings = Settings(prefix=str(tmp_path), node_name="n")
    pending = daemons.restart_pending_file(settings)
    pending.parent.mkdir(parents=True)
    pending.touch()
    try:
        await daemons.start(settings)
        assert not pending.exists()
        await running(settings)
        pending.touch()
        await daemons.start(settings)
        assert pending.exists(), "they run with what they read before"
    finally:
        monkeypatch.setattr(daemons, "uses_systemd", lambda settings: False)
        await daemons.stop(settings)
