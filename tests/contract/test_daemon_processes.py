"""Processes that the command starts as root."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from wherry import daemons
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
    await daemons.start(settings)
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
        daemons.stale_mark(settings).touch()
        assert await daemons.restart_stale(settings) == ["agent"]
        async with asyncio.timeout(20):
            while (after := await daemons.running(settings))["agent"] in (0, before["agent"]):
                await asyncio.sleep(0.02)
        assert after["control"] == before["control"] and not daemons.stale_mark(settings).exists()
        daemons.stale_mark(settings).touch()
    finally:
        await daemons.stop(settings)
    assert not daemons.stale_mark(settings).exists(), "the next ones read the files when they start"


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
    finally:
        for pid in spawned:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        await daemons.stop(settings)
