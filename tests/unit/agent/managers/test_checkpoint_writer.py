"""Checkpoints of all managers: the newest state is the last on disk, and what could not be written is written later."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent.claims import checkpoint as claims_checkpoint
from agent.claims.checkpoint import ClaimDevice, ClaimInfo
from agent.claims.manager import ClaimManager
from agent.container_manager.manager import SWEEP_SECONDS, ContainerManager
from agent.devices import checkpoint as device_checkpoint
from agent.devices.manager import DeviceManager
from agent.devices.pool import Device, Pool
from agent.managers import cpu_state, memory_state, state_files
from agent.managers.cpu import CpuManager
from agent.managers.errors import DynamicResourceError
from agent.managers.hints import ANY
from agent.managers.memory import MemoryManager
from agent.managers.options import ManagerOptions
from kube.api import core_v1
from tests.support.clock import FakeClock, settle
from tests.unit.agent.managers.machines import machine
from tests.unit.agent.pods import pod

GPU = "example.com/gpu"


class Plugin:
    resource, socket, options = GPU, "gpu.sock", SimpleNamespace(preferences=False, pre_start=False)

    def __init__(self) -> None:
        self.reports = asyncio.Queue[dict[str, Device]]()

    async def devices(self) -> Any:
        while True:
            yield await self.reports.get()

    async def allocate(self, ids: list[str]) -> bytes:
        return b""

    async def close(self) -> None:
        pass


class Drivers:
    def __init__(self) -> None:
        self.prepared = list[str]()

    def get(self, name: str) -> Any:
        return self

    async def prepare(self, claims: list[ClaimInfo]) -> dict[str, list[ClaimDevice]]:
        self.prepared += [claim.name for claim in claims]
        return {claim.uid: [] for claim in claims}


def wants_gpu(uid: str) -> core_v1.Pod:
    return pod({"name": "main", "resources": {"limits": {GPU: "1"}}}, metadata={"uid": uid})


def guaranteed(uid: str) -> core_v1.Pod:
    limits = {"cpu": "1", "memory": "64Mi"}
    return pod({"name": "main", "resources": {"limits": limits, "requests": limits}}, metadata={"uid": uid})


def of_devices(root: Path) -> tuple[Callable[[str], Awaitable[None]], Callable[[], set[str]]]:
    manager = DeviceManager(root, (0,), clock=FakeClock(), changed=lambda: None)
    pool = manager._pools[GPU] = Pool(GPU)
    pool.devices = {"a": Device(True), "b": Device(True)}
    manager._plugins[GPU] = Plugin()  # type: ignore[assignment]

    async def change(uid: str) -> None:
        given = wants_gpu(uid)
        await manager.allocate(given, given.spec.containers[0], ANY, reused=False)
        await manager.save()

    return change, lambda: {entry.uid for entry in (device_checkpoint.load(root) or ((), {}))[0]}


def of_cpus(root: Path) -> tuple[Callable[[str], Awaitable[None]], Callable[[], set[str]]]:
    manager = CpuManager(machine(root / "sys", cores=4), root, "static", {}, reserved_count=1)

    async def change(uid: str) -> None:
        given = guaranteed(uid)
        await manager.allocate(given, given.spec.containers[0], ANY, reused=False)
        await manager.save()

    return change, lambda: set((cpu_state.load(root, "static") or cpu_state.CpuState("static")).assigned)


def of_memory(root: Path) -> tuple[Callable[[str], Awaitable[None]], Callable[[], set[str]]]:
    manager = MemoryManager(machine(root / "sys"), root, "Static", {})

    async def change(uid: str) -> None:
        given = guaranteed(uid)
        await manager.allocate(given, given.spec.containers[0], ANY, reused=False)
        await manager.save()

    def written() -> set[str]:
        found = memory_state.load(root, "Static")
        return set(found.entries) if found is not None else set()

    return change, written


def of_claims(root: Path, drivers: Any = None) -> tuple[Callable[[str], Awaitable[None]], Callable[[], set[str]]]:
    manager = ClaimManager(None, drivers or Drivers(), root)  # type: ignore[arg-type]

    async def change(uid: str) -> None:
        claim = ClaimInfo(uid, uid, "ns", drivers={"driver": []}, allocated=frozenset())
        await manager._prepare(pod(metadata={"uid": uid}), [claim])

    return change, lambda: {claim.name for claim in claims_checkpoint.load(root)}


class SlowDisk:
    """Completes the first write of a checkpoint after the second one, if that does not wait for it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.began, self.ended = threading.Event(), threading.Event()
        """Of the first write."""
        self._write, self._second = state_files.write, threading.Event()
        monkeypatch.setattr(state_files, "write", self.write)

    def write(self, path: Path, content: Mapping[str, Any]) -> None:
        if self.began.is_set():
            self._write(path, content)
            self._second.set()
            return
        self.began.set()
        self._second.wait(0.3)
        self._write(path, content)
        self.ended.set()


@pytest.mark.parametrize("made", [of_devices, of_cpus, of_memory, of_claims])
async def test_the_newest_state_is_the_last_that_is_written_when_a_waiting_task_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Any
) -> None:
    change, written = made(tmp_path)
    disk = SlowDisk(monkeypatch)
    first = asyncio.create_task(change("first"))
    assert await asyncio.to_thread(disk.began.wait, 10)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    await change("second")
    assert await asyncio.to_thread(disk.ended.wait, 10)
    assert written() == {"first", "second"}


async def test_a_plugins_report_does_not_replace_the_allocations_that_come_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = DeviceManager(tmp_path, (0,), clock=FakeClock(), changed=lambda: None)
    disk = SlowDisk(monkeypatch)
    plugin: Any = Plugin()
    follows = asyncio.create_task(manager.follow(plugin))
    try:
        plugin.reports.put_nowait({"a": Device(True), "b": Device(True)})
        assert await asyncio.to_thread(disk.began.wait, 10)
        given = wants_gpu("first")
        await manager.allocate(given, given.spec.containers[0], ANY, reused=False)
        await manager.save()
        assert await asyncio.to_thread(disk.ended.wait, 10)
        found = device_checkpoint.load(tmp_path)
        assert found is not None and [entry.uid for entry in found[0]] == ["first"]
    finally:
        follows.cancel()
        await asyncio.gather(follows, return_exceptions=True)


class FullDisk:
    """Refuses all writes of checkpoints while it is full."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full, self.refused, self._write = True, 0, state_files.write
        monkeypatch.setattr(state_files, "write", self.write)

    def write(self, path: Path, content: Mapping[str, Any]) -> None:
        if self.full:
            self.refused += 1
            raise OSError(errno.ENOSPC, "No space left on device")
        self._write(path, content)


async def test_a_device_whose_allocation_cannot_be_written_is_not_given_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As upstream: the next agent would give it to another container while this one uses it."""
    managers = ContainerManager(tmp_path, ManagerOptions(), reserved_cpus=0, clock=FakeClock())
    pool = managers.devices._pools[GPU] = Pool(GPU)
    pool.devices = {"a": Device(True)}
    managers.devices._plugins[GPU] = Plugin()  # type: ignore[assignment]
    disk = FullDisk(monkeypatch)
    refused = await managers.admit(wants_gpu("first"), ())
    assert refused is not None and refused.reason == "UnexpectedAdmissionError"
    assert 'failed to write checkpoint file "kubelet_internal_checkpoint"' in (refused.message or "")
    assert not managers.devices.owners
    disk.full = False
    assert await managers.admit(wants_gpu("second"), ()) is None


async def test_a_plugins_report_that_cannot_be_written_does_not_stand_for_an_allocation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    managers = ContainerManager(tmp_path, ManagerOptions(), reserved_cpus=0, clock=FakeClock())
    devices = managers.devices
    devices._pools[GPU] = Pool(GPU, {"a": Device(True), "b": Device(True)})

    class Reporting(Plugin):
        async def allocate(self, ids: list[str]) -> bytes:
            loop = asyncio.get_running_loop()
            loop.call_soon(loop.create_task, devices.checkpoint.try_save())  # as after a report, once this has returned
            return b""

    devices._plugins[GPU] = Reporting()  # type: ignore[assignment]
    disk = FullDisk(monkeypatch)
    assert await managers.admit(wants_gpu("first"), ()) is not None and not devices.owners
    disk.full = False
    assert await managers.admit(wants_gpu("second"), ()) is None
    disk.full = True
    assert await managers.admit(wants_gpu("third"), ()) is not None
    assert await managers.admit(wants_gpu("second"), ()) is None, "it has its device on disk"


async def test_what_could_not_be_written_is_written_when_the_disk_has_space_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock()
    managers = ContainerManager(tmp_path, ManagerOptions(), reserved_cpus=0, clock=clock)
    managers.cpu = CpuManager(machine(tmp_path / "sys", cores=4), tmp_path / "cpu", "static", {}, reserved_count=1)
    managers.memory = MemoryManager(machine(tmp_path / "sys"), tmp_path / "memory", "Static", {})
    disk, given = FullDisk(monkeypatch), guaranteed("first")
    for manager in (managers.cpu, managers.memory):
        await manager.allocate(given, given.spec.containers[0], ANY, reused=False)
        await manager.save()
    assert "cpu_manager_state: [Errno 28] No space left on device" in caplog.text
    runs = asyncio.create_task(managers.run(None, lambda: [SimpleNamespace(pod=given)]))  # type: ignore[arg-type,list-item]
    try:
        writers = managers.cpu.checkpoint, managers.memory.checkpoint
        while disk.refused < 4 or any(
            writer._writes for writer in writers
        ):  # those of the allocations and the first tries
            await asyncio.sleep(0.001)
        await settle()
        disk.full = False
        before = cpu_state.load(tmp_path / "cpu", "static")
        assert before is not None and not before.assigned
        await clock.advance(SWEEP_SECONDS)
        for _ in range(1000):
            written = memory_state.load(tmp_path / "memory", "Static")
            if written is not None and written.entries:
                break
            await asyncio.sleep(0.01)
        cpus, memory = cpu_state.load(tmp_path / "cpu", "static"), memory_state.load(tmp_path / "memory", "Static")
        assert cpus is not None and set(cpus.assigned) == {"first"}
        assert memory is not None and set(memory.entries) == {"first"}
    finally:
        runs.cancel()
        await asyncio.gather(runs, return_exceptions=True)


async def test_a_claim_that_cannot_be_recorded_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drivers, disk = Drivers(), FullDisk(monkeypatch)
    change, written = of_claims(tmp_path, drivers)
    with pytest.raises(DynamicResourceError, match=r"failed to checkpoint claimInfo state: .*No space left on device"):
        await change("first")
    assert drivers.prepared == [], "the checkpoint comes before each call"
    disk.full = False
    await change("first")
    assert drivers.prepared == ["first"] and written() == {"first"}
