"""Allocated devices of a resource, and the NUMA nodes of free ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.devices import checkpoint
from agent.devices.checkpoint import Allocation
from agent.devices.pool import Device, Pool
from agent.managers.errors import AdmissionError
from agent.managers.hints import Hint
from agent.managers.state_files import StateError


def pool(**nodes: int | None) -> Pool:
    """Healthy devices by name on a node, None anywhere."""
    return Pool("example.com/gpu", {n: Device(True, () if node is None else (node,)) for n, node in nodes.items()})


@pytest.mark.parametrize(
    ("affinity", "aligned", "others"),
    [
        (0b01, ["a", "b"], ["c", "d"]),
        (0b10, ["c"], ["a", "b", "d"]),
        (0b11, ["c", "a", "b"], ["d"]),  # the node with the fewest first
        (None, [], ["a", "b", "c", "d"]),
    ],
)
def test_devices_near_the_affinity_come_first(affinity: int | None, aligned: list[str], others: list[str]) -> None:
    assert pool(a=0, b=0, c=1, d=None).sort_by_affinity("abcd", affinity) == (aligned, others)


@pytest.mark.parametrize(
    ("free", "must", "need", "hints"),
    [
        ("abc", "", 1, [(0b01, True), (0b10, True), (0b11, False)]),
        ("abc", "", 2, [(0b01, True), (0b11, False)]),
        ("abc", "", 3, [(0b11, True)]),
        ("ac", "", 2, [(0b11, False)]),  # two on one node there are, but taken
        ("ab", "c", 2, [(0b11, False)]),
        ("ab", "a", 1, [(0b01, True), (0b11, False)]),
        ("", "", 1, []),
    ],
)
def test_hints_name_the_nodes_with_enough_devices(
    free: str, must: str, need: int, hints: list[tuple[int, bool]]
) -> None:
    assert pool(a=0, b=0, c=1).hints((0, 1), free, must, need) == [Hint(*hint) for hint in hints]


def test_missing_devices_are_reported() -> None:
    found = pool(a=0)
    with pytest.raises(AdmissionError, match=r"unavailable for example.com/gpu\. Requested: 2, Available: 1"):
        found.check(2, {"a"})
    found.lost()
    assert found.healthy == set() and found.devices["a"].nodes == (0,)
    with pytest.raises(AdmissionError, match="no healthy devices present; cannot allocate unhealthy devices"):
        found.check(1, set())


def test_allocations_are_written_in_upstreams_format_and_read_back(tmp_path: Path) -> None:
    given = [Allocation("u1", "main", "example.com/gpu", {-1: ["a"], 1: ["b", "c"]}, b"\x01\xff")]
    checkpoint.CheckpointFile(tmp_path).save(given, {"example.com/gpu": ["c", "b", "a"]})
    file = tmp_path / "kubelet_internal_checkpoint"
    written = json.loads(file.read_text())
    assert written["Data"] == {
        "PodDeviceEntries": [
            {
                "PodUID": "u1",
                "ContainerName": "main",
                "ResourceName": "example.com/gpu",
                "DeviceIDs": {"-1": ["a"], "1": ["b", "c"]},
                "AllocResp": "Af8=",
            }
        ],
        "RegisteredDevices": {"example.com/gpu": ["a", "b", "c"]},
    }
    assert checkpoint.load(tmp_path) == (given, {"example.com/gpu": ["a", "b", "c"]})
    assert given[0].ids == ["a", "b", "c"]
    written["Data"]["PodDeviceEntries"][0]["PodUID"] = "u2"
    file.write_text(json.dumps(written))
    with pytest.raises(StateError, match="checkpoint is corrupted"):
        checkpoint.load(tmp_path)
    assert checkpoint.load(tmp_path / "none") is None
