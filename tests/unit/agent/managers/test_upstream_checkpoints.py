"""The files that an upstream v1.36 kubelet leaves, with the checksums that its own packages computed, and damaged ones."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.claims import checkpoint as claims
from agent.container_manager.manager import ContainerManager
from agent.devices import checkpoint as devices
from agent.devices.manager import DeviceManager
from agent.managers import cpu_state, memory_state
from agent.managers.options import ManagerOptions
from agent.managers.state_files import StateError
from tests.support.clock import FakeClock

TABLE = {"total": 100, "systemReserved": 10, "allocatable": 90, "reserved": 5, "free": 85}
MACHINE = {
    "0": {"numberOfAssignments": 1, "memoryMap": {"hugepages-2Mi": TABLE, "memory": TABLE}, "cells": [0]},
    "10": {"numberOfAssignments": 0, "memoryMap": {}, "cells": [10, 1]},
    "2": {"numberOfAssignments": 0, "memoryMap": None, "cells": None},
}
BLOCK = {"numaAffinity": [0], "type": "memory", "size": 5}
ENTRIES = [
    {
        "PodUID": "p",
        "ContainerName": "c",
        "ResourceName": "a/b",
        "DeviceIDs": {"-1": ["x", "y"], "1": ["z"], "10": ["w"], "2": ["v"]},
        "AllocResp": "AQL/",
    },
    {"PodUID": "q", "ContainerName": "c", "ResourceName": "a/b", "DeviceIDs": {"0": []}, "AllocResp": ""},
    {"PodUID": "r", "ContainerName": "c", "ResourceName": "a/b", "DeviceIDs": None, "AllocResp": None},
]
CLAIMS = (
    '{"kind":"DRACheckpoint","apiVersion":"checkpoint.dra.kubelet.k8s.io/v1","ClaimInfoStateList":[{"ClaimUID":"u",'
    '"ClaimName":"n","Namespace":"ns","PodUIDs":{"p1":{},"p2":{}},"DriverState":{"d.example":{"Devices":[{"PoolName":'
    '"pool","DeviceName":"dev","ShareID":"5e3a","RequestNames":["r"],"CDIDeviceIDs":["v/c=d"]},{"PoolName":"pool",'
    '"DeviceName":"e","ShareID":null,"RequestNames":null,"CDIDeviceIDs":null}]},"e.example":{"Devices":null}}}]}'
)
NO_CLAIMS = '{"kind":"DRACheckpoint","apiVersion":"checkpoint.dra.kubelet.k8s.io/v1","ClaimInfoStateList":null}'

Load = Callable[[Path], Any]
LOADERS: dict[str, Load] = {
    cpu_state.FILE: lambda root: cpu_state.load(root, "static"),
    memory_state.FILE: lambda root: memory_state.load(root, "Static"),
    devices.FILE: devices.load,
    claims.FILE: claims.load,
}


def cpu(shared: str, checksum: int, **entries: Any) -> dict[str, Any]:
    return {"policyName": "static", "defaultCpuSet": shared, **entries, "checksum": checksum}


def memory(checksum: int, **more: Any) -> dict[str, Any]:
    return {"policyName": "Static", **more, "checksum": checksum}


def plugged(entries: Any, registered: Any, checksum: int) -> dict[str, Any]:
    return {"Data": {"PodDeviceEntries": entries, "RegisteredDevices": registered}, "Checksum": checksum}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (cpu_state.FILE, cpu("0-3,6", 296857477, entries={"p1": {"c": "7"}, "p2": {"a": "5", "b": "4"}})),
        (memory_state.FILE, memory(3734928913, machineState=MACHINE, entries={"p": {"c": [BLOCK], "d": None}})),
        (devices.FILE, plugged(None, {}, 3467439661)),
        (devices.FILE, plugged(None, None, 1944006890)),
        (devices.FILE, plugged([], {"a/b": [], "a/n": None}, 2394764815)),
        (devices.FILE, plugged(ENTRIES, {"a/b": ["x", "y", "z"]}, 3781008394)),
        (claims.FILE, {"Data": CLAIMS, "Checksum": 4135958543}),
        (claims.FILE, {"Data": NO_CLAIMS, "Checksum": 4010664294}),
    ],
)
def test_what_upstream_wrote_is_read_and_what_was_changed_is_not(
    tmp_path: Path, name: str, content: dict[str, Any]
) -> None:
    (tmp_path / name).write_text(json.dumps(content))
    assert LOADERS[name](tmp_path) is not None
    field = next(key for key in content if key.lower() == "checksum")
    (tmp_path / name).write_text(json.dumps({**content, field: content[field] + 1}))
    with pytest.raises(StateError, match="checkpoint is corrupted"):
        LOADERS[name](tmp_path)


@pytest.mark.parametrize("policy", ["none", "None"])
def test_files_of_nodes_without_policies_are_read(tmp_path: Path, policy: str) -> None:
    none = {"policyName": "none", "defaultCpuSet": "", "checksum": 1353318690}
    (tmp_path / cpu_state.FILE).write_text(json.dumps(none))
    empty = {"policyName": "None", "machineState": {}, "checksum": 4236770233}
    (tmp_path / memory_state.FILE).write_text(json.dumps(empty))
    assert cpu_state.load(tmp_path, "none") == cpu_state.CpuState("none")
    assert memory_state.load(tmp_path, "None") == memory_state.MemoryState(policy_name="None")
    cpu_state.save(tmp_path, cpu_state.CpuState("none"))
    memory_state.save(tmp_path, memory_state.MemoryState(policy_name="None"))
    assert json.loads((tmp_path / cpu_state.FILE).read_text()) == none
    assert json.loads((tmp_path / memory_state.FILE).read_text()) == empty


def test_claims_are_read_and_written_in_upstreams_words(tmp_path: Path) -> None:
    (tmp_path / claims.FILE).write_text(json.dumps({"Data": CLAIMS, "Checksum": 4135958543}))
    [found] = claims.load(tmp_path)
    assert found.pods == {"p1", "p2"} and found.drivers["e.example"] == []
    assert [device.share for device in found.drivers["d.example"]] == ["5e3a", None]
    written = json.loads(claims.encode([found])["Data"])
    expected = json.loads(CLAIMS)
    expected["ClaimInfoStateList"][0]["DriverState"]["e.example"]["Devices"] = []
    assert written == expected


def test_what_an_agent_before_wrote_of_claims_is_still_read(tmp_path: Path) -> None:
    data = CLAIMS.replace("ClaimInfoStateList", "Entries")
    (tmp_path / claims.FILE).write_text(json.dumps({"Data": data, "Checksum": zlib.crc32(data.encode())}))
    assert [claim.uid for claim in claims.load(tmp_path)] == ["u"]


DAMAGED: dict[str, bytes] = {
    "empty": b"",
    "cut": b'{"policyName":"sta',
    "another type": b"[]",
    "binary": b"\xff\xfe\x00",
    "deep": b"[" * 100_000,
    "wrong types": b'{"policyName":1,"machineState":[],"entries":[],"Data":[],"checksum":"x","Checksum":[]}',
}


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize("damage", [*DAMAGED, "folder"])
def test_a_file_that_nobody_can_read_is_an_error(tmp_path: Path, name: str, damage: str) -> None:
    path = tmp_path / name
    path.mkdir() if damage == "folder" else path.write_bytes(DAMAGED[damage])
    with pytest.raises(StateError) as raised:
        LOADERS[name](tmp_path)
    if name != devices.FILE:
        assert f'"{path}"' in str(raised.value) and "please drain this node and delete the" in str(raised.value)


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_device_checkpoint_is_logged_and_does_not_prevent_the_agents_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    path = tmp_path / devices.FILE
    path.write_bytes(DAMAGED[damage])
    manager = DeviceManager(tmp_path, (0,), clock=FakeClock(), changed=lambda: None)
    assert manager.idle and not manager.without_checkpoint
    assert str(path) in caplog.text and "drain this node" in caplog.text


@pytest.mark.parametrize("name", [cpu_state.FILE, memory_state.FILE, claims.FILE])
def test_the_agent_reports_an_unreadable_file_at_its_start(tmp_path: Path, name: str) -> None:
    from agent.claims.drivers import DRADrivers
    from agent.claims.manager import ClaimManager
    from agent.kubelet_configuration import ConfigError

    (tmp_path / name).write_bytes(b"{")

    def make() -> ClaimManager:
        return ClaimManager(None, DRADrivers.__new__(DRADrivers), tmp_path)  # type: ignore[arg-type]

    with pytest.raises(ConfigError, match=name):
        ContainerManager(tmp_path, ManagerOptions(), reserved_cpus=0, clock=FakeClock(), claims=make)
