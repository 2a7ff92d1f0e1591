"""Contents of /stats/summary, and the pieces in which pods of many volumes are encoded."""

from __future__ import annotations

import json
from typing import Any

from agent.server import app
from agent.usage.model import (
    CPU,
    ContainerUse,
    Filesystem,
    Interface,
    Memory,
    NodeUse,
    PersistentUse,
    PodUse,
    Snapshot,
)
from agent.usage.summary import PIECE_BYTES, pieces

DISK = Filesystem(60.0, 1000, 700, 300, 90, 80, 10)
TIME = "1970-01-01T00:01:00Z"
SHOWN_DISK = {
    "time": TIME,
    "availableBytes": 700,
    "capacityBytes": 1000,
    "usedBytes": 300,
    "inodesFree": 80,
    "inodes": 90,
    "inodesUsed": 10,
}
NODE = NodeUse("n", 60.0, CPU(60.0, 5), Memory(60.0, 7), (Interface("eth0", 1, 2, 3, 4),), DISK, DISK, 8, 9)
SHOWN_MEMORY = {
    "time": TIME,
    "usageBytes": 0,
    "workingSetBytes": 7,
    "rssBytes": 0,
    "pageFaults": 0,
    "majorPageFaults": 0,
}


def container(name: str) -> ContainerUse:
    return ContainerUse(name, name, "i", 60.0, CPU(60.0, 5, 3), Memory(60.0, 7), 0, 20, 2, 30, 3)


def pod(name: str, volumes: int, containers: int = 1) -> PodUse:
    return PodUse(
        name,
        "default",
        f"uid of {name}",
        60.0,
        tuple(container(f"c{number}") for number in range(containers)),
        CPU(60.0, 5),
        Memory(60.0, 7),
        (),
        4,
        tuple((f"v{number}", DISK) for number in range(volumes)),
        (PersistentUse("data", ("default", "claim"), DISK), PersistentUse("scratch", None, DISK)),
        (1, 1),
    )


def shown(*pods: PodUse, short: bool = False) -> Any:
    return json.loads(b"".join(pieces(Snapshot(NODE, pods), only_cpu_and_memory=short)))


def test_a_pod_is_shown_with_its_containers_and_volumes() -> None:
    (found,) = shown(pod("p", 2))["pods"]
    assert found["podRef"] == {"name": "p", "namespace": "default", "uid": "uid of p"}
    assert found["startTime"] == TIME and found["process_stats"] == {"process_count": 4}
    assert found["cpu"] == {"time": TIME, "usageCoreNanoSeconds": 5} and found["memory"] == SHOWN_MEMORY
    assert found["containers"] == [
        {
            "name": "c0",
            "startTime": TIME,
            "cpu": {"time": TIME, "usageNanoCores": 3, "usageCoreNanoSeconds": 5},
            "memory": SHOWN_MEMORY,
            "rootfs": SHOWN_DISK | {"usedBytes": 20, "inodesUsed": 2},
            "logs": SHOWN_DISK | {"usedBytes": 30, "inodesUsed": 3},
        }
    ]
    claim = {"pvcRef": {"name": "claim", "namespace": "default"}}
    assert found["volume"] == [
        {"name": "v0", **SHOWN_DISK},
        {"name": "v1", **SHOWN_DISK},
        {"name": "data", **SHOWN_DISK, **claim},
        {"name": "scratch", **SHOWN_DISK},
    ]
    assert found["ephemeral-storage"] == SHOWN_DISK | {"usedBytes": 1 + 50 + 600, "inodesUsed": 1 + 2 + 20}
    assert "network" not in found


def test_the_node_is_shown_without_pods_and_with_several() -> None:
    assert shown()["pods"] == [] and shown()["node"]["nodeName"] == "n"
    assert shown()["node"]["rlimit"] == {"time": TIME, "maxpid": 9, "curproc": 8}
    assert [one["podRef"]["name"] for one in shown(pod("a", 0), pod("b", 3, 0), pod("c", 1))["pods"]] == ["a", "b", "c"]


def test_cpu_and_memory_are_shown_without_the_rest() -> None:
    short = shown(pod("p", 2), short=True)
    assert set(short["node"]) == {"nodeName", "startTime", "cpu", "memory"}
    assert set(short["pods"][0]) == {"podRef", "startTime", "cpu", "memory", "containers"}
    assert set(short["pods"][0]["containers"][0]) == {"name", "startTime", "cpu", "memory"}


async def test_pods_of_thousands_of_volumes_and_containers_are_encoded_in_pieces_that_others_run_between() -> None:
    snapshot = Snapshot(NODE, (pod("p", 20_000), pod("q", 10, 2000)))
    encoded = [piece async for piece in app._one_by_one(pieces(snapshot))]
    assert len(encoded) > 100 and max(map(len, encoded)) < PIECE_BYTES + 1024
    first, second = json.loads(b"".join(encoded))["pods"]
    assert len(first["volume"]) == 20_002 and len(second["containers"]) == 2000
