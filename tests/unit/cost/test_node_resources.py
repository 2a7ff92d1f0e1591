"""Devices, processors and memory for a pod of many containers cost time in proportion to it: admission, files, status.

Steps are lines of Python and comparisons of texts, as with large objects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent.container_manager import health
from agent.container_manager.manager import ContainerManager
from agent.devices import checkpoint
from agent.devices.checkpoint import Allocation
from agent.devices.manager import DeviceManager
from agent.devices.pool import Device, Pool
from agent.managers import cpu_state, memory_state, state_files
from agent.managers.cpu import CpuManager
from agent.managers.hints import Hint, Merger
from agent.managers.memory import MemoryManager
from agent.managers.options import ManagerOptions
from agent.managers.topology_manager import TopologyManager
from kube.api import core_v1
from kube.clock import SYSTEM
from tests.unit.agent.managers.machines import machine
from tests.unit.agent.pods import pod
from tests.unit.cost.test_large_objects import COUNTS, STEEPEST, Steps, Text
from tests.unit.cost.test_large_pods import numbered

GPU = "example.com/gpu"
FILES = (checkpoint.FILE, cpu_state.FILE, memory_state.FILE)


class Plugin:
    options = SimpleNamespace(preferences=False, pre_start=False)

    async def allocate(self, ids: list[str]) -> bytes:
        return b"answer" * 50


def with_devices(manager: DeviceManager, count: int) -> DeviceManager:
    manager._pools[GPU] = Pool(GPU, {f"gpu-{n}": Device(healthy=True) for n in range(count)})
    manager._plugins[GPU] = Plugin()  # type: ignore[assignment]
    return manager


def all_managers(root: Path) -> ContainerManager:
    """Return managers that give everything."""
    found = ContainerManager(root, ManagerOptions(), reserved_cpus=0, clock=SYSTEM)
    hardware = machine(root / "sys", nodes=2, cores=4, memory=1 << 40)
    found.cpu = CpuManager(hardware, root / "static", "static", {}, reserved_count=1)
    found.memory = MemoryManager(hardware, root / "static", "Static", {})
    with_devices(found.devices, 4)
    merger = Merger("best-effort", hardware.node_ids)
    found.topology = TopologyManager(merger, "container", [found.cpu, found.memory, found.devices])
    return found


def asking(count: int, uid: str) -> core_v1.Pod:
    """Return a pod of which each container uses the processor, memory and device of the one before it."""
    sizes = {"cpu": "1", "memory": "1Mi", GPU: "1"}

    def container(number: int) -> dict[str, Any]:
        return {"name": f"c{number}", "resources": {"limits": sizes, "requests": sizes}}

    return pod(
        {"name": "main", "resources": {"limits": sizes}},
        init=numbered(count, container),
        metadata={"uid": uid},
        status={"qosClass": "Guaranteed"},
    )


def shared(count: int, root: Path) -> Callable[[], object]:
    managers, given = all_managers(root), asking(count, "u")
    return lambda: asyncio.run(managers.admit(given, ()))


def of_another_pod(count: int, root: Path) -> Callable[[], object]:
    """Return the admission of a pod whose device another pod has already, for many of its containers."""
    managers = all_managers(root)
    given = pod(init=numbered(count, lambda n: {"name": f"c{n}"}), status={"qosClass": "BestEffort"})
    gpu = {"limits": {GPU: "1"}}
    given.spec.containers = pod({"name": "main", "resources": gpu}).spec.containers
    for number in range(count):
        managers.devices._allocations.add(Allocation("other", f"c{number}", GPU, {0: ["gpu-0"]}))
    return lambda: asyncio.run(managers.admit(given, ()))


def chosen(count: int, root: Path) -> Callable[[], object]:
    """Return the choice of many devices that are near a NUMA node, or not."""
    devices = {Text(f"gpu-{n}"): Device(True, nodes=(n % 2,)) for n in range(count)}
    pool = Pool(GPU, devices)
    manager = with_devices(DeviceManager(root, (0, 1), clock=SYSTEM, changed=lambda: None), 0)
    preferring: Any = SimpleNamespace(options=SimpleNamespace(preferences=True), prefer=prefer)
    wanted = manager._choose(pool, preferring, count - 1, [], set(devices), Hint(0b01))
    return lambda: asyncio.run(wanted)


async def prefer(available: list[str], must: list[str], need: int) -> list[str]:
    return list(reversed(available))


def statuses(count: int, root: Path) -> Callable[[], object]:
    manager = with_devices(DeviceManager(root, (0,), clock=SYSTEM, changed=lambda: None), 1)
    given = pod(*numbered(count, lambda n: {"name": f"c{n}"}))
    for container in given.spec.containers:
        manager._allocations.add(Allocation(given.metadata.uid or "", container.name, GPU, {0: ["gpu-0"]}))
    shown = [core_v1.ContainerStatus(name=c.name, image="i", image_id="i") for c in given.spec.containers]
    status = core_v1.PodStatus(container_statuses=shown)
    return lambda: health.report(manager, None, given, status, 0.0)


@pytest.mark.parametrize("prepare", [shared, of_another_pod, chosen, statuses])
def test_what_a_node_gives_is_linear_in_the_number_of_containers_and_devices(
    prepare: Callable[[int, Path], Callable[[], object]], tmp_path: Path
) -> None:
    def steps(count: int) -> int:
        work = prepare(count, tmp_path / str(count))
        with Steps() as lines:
            work()
        return lines.count

    steps(2)  # what is made once
    few, more, many = (steps(count) for count in COUNTS)
    assert few < more < many and (many - more - 2 * (more - few)) / (6 * COUNTS[0] ** 2) < STEEPEST


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are written."""
    names, write = list[str](), state_files.write

    def counted(path: Path, content: Mapping[str, Any]) -> None:
        names.append(path.name)
        write(path, content)

    monkeypatch.setattr(state_files, "write", counted)
    return names


async def test_an_admission_writes_each_file_once_for_all_containers(tmp_path: Path, writes: list[str]) -> None:
    managers = all_managers(tmp_path)
    writes.clear()
    assert await managers.admit(asking(20, "first"), ()) is None
    assert sorted(writes) == sorted(FILES)
    again = all_managers(tmp_path)
    for manager in (again.cpu, again.memory, again.devices):
        assert manager.owners == {"first"}
    assert [len(list(again.devices._allocations)), len(again.memory._state.entries["first"])] == [21, 21]
    writes.clear()
    assert await again.admit(asking(20, "first"), ()) is None
    assert writes == [], "it has everything already"


async def test_a_pod_that_runs_keeps_on_disk_what_some_of_its_containers_were_given(tmp_path: Path) -> None:
    managers, given = all_managers(tmp_path), asking(3, "first")
    given.spec.containers[0].resources = core_v1.ResourceRequirements(limits={GPU: "9"})
    assert await managers.admit(given, {"main"}) is None
    assert all_managers(tmp_path).devices.owners == {"first"}
    refused = await managers.admit(asking(3, "second"), ())
    assert refused is None
    given.metadata.uid = "third"
    assert await managers.admit(given, ()) is not None
    for manager in (managers.devices, all_managers(tmp_path).devices):
        assert manager.owners == {"first", "second"}


async def test_of_the_devices_file_only_what_is_new_is_summed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    managers = all_managers(tmp_path)
    assert await managers.admit(asking(50, "first"), ()) is None
    summed, real = list[int](), state_files.checksum

    def counted(printed: str | bytes, value: int = 0x811C9DC5) -> int:
        summed.append(len(printed))
        return real(printed, value)

    monkeypatch.setattr(state_files, "checksum", counted)
    managers.devices.checkpoint.mark()
    await managers.devices.save()
    assert sum(summed) < 500
    managers.devices._allocations.add(Allocation("second", "main", GPU, {0: ["gpu-1"]}, b"x"))
    managers.devices.checkpoint.mark()
    await managers.devices.save()
    assert sum(summed) < 1000
    await managers.devices.release("first")
    found = checkpoint.load(tmp_path / "device-plugins")
    assert found is not None and [entry.uid for entry in found[0]] == ["second"]
