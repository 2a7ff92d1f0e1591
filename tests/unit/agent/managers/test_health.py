"""Device health that drivers report, and how long a report is valid."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent.claims.checkpoint import ClaimDevice, ClaimInfo
from agent.claims.device_health import DeviceHealthCache, Health
from agent.claims.manager import ClaimManager
from agent.container_manager import health
from agent.container_manager.health import MOST
from agent.devices.checkpoint import Allocation
from kube.api import core_v1, meta_v1


def test_health_is_valid_for_the_drivers_timeout() -> None:
    changes: list[None] = []
    healths = DeviceHealthCache(lambda: changes.append(None))
    assert healths.of("d", "p", "x", 0.0) == ("Unknown", "")
    healths.update("d", [Health("p", "x", "Healthy", at=100.0), Health("p", "y", "Unhealthy", "hot", 100.0, 60)])
    assert len(changes) == 1
    assert healths.of("d", "p", "x", 130.0) == ("Healthy", "")
    assert healths.of("d", "p", "x", 131.0) == ("Unknown", "")
    assert healths.of("d", "p", "y", 131.0) == ("Unhealthy", "hot")
    healths.update("d", [Health("p", "x", "Healthy", at=200.0), Health("p", "y", "Unhealthy", "hot", 200.0, 60)])
    assert len(changes) == 1  # said again, and nothing new
    healths.forget("d")
    healths.forget("d")
    assert len(changes) == 2 and healths.of("d", "p", "y", 200.0) == ("Unknown", "")


def test_long_words_are_cut() -> None:
    healths = DeviceHealthCache(lambda: None)
    healths.update("d", [Health("p", "x", "Unhealthy", "m" * 2000, 0.0)])
    text = healths.of("d", "p", "x", 0.0)[1]
    assert len(text) == 1024 and text.endswith("m...")


def used(entries: int, devices: int, containers: int, folder: Path) -> tuple[ClaimManager, core_v1.Pod]:
    """Return a pod of so many containers with so many entries each, all for one claim of so many devices."""
    drivers = SimpleNamespace(health=DeviceHealthCache(lambda: None))
    manager = ClaimManager(cast(Any, None), cast(Any, drivers), folder)
    given = [ClaimDevice("pool", f"gpu-{number}", ("r",)) for number in range(devices)]
    manager._claims["n", "c"] = ClaimInfo("claim", "c", "n", {"u"}, {"gpu.example.com": given}, prepared=True)
    names = [f"e{number}" for number in range(entries)]
    spec = core_v1.PodSpec(
        resource_claims=[core_v1.PodResourceClaim(name=name, resource_claim_name="c") for name in names],
        containers=[
            core_v1.Container(
                name=f"c{number}",
                resources=core_v1.ResourceRequirements(claims=[core_v1.ResourceClaim(name=name) for name in names]),
            )
            for number in range(containers)
        ],
    )
    return manager, core_v1.Pod(metadata=meta_v1.ObjectMeta(name="p", namespace="n", uid="u"), spec=spec)


@pytest.mark.parametrize(
    ("entries", "devices", "containers", "reported"),
    [(2, 3, 2, 12), (5000, 32, 1, MOST), (40, 32, 3, MOST), (1, 5000, 2, MOST), (7, 150, 1, MOST)],
)
def test_the_health_of_a_limited_number_of_devices_is_reported(
    entries: int, devices: int, containers: int, reported: int, tmp_path: Path
) -> None:
    manager, pod = used(entries, devices, containers, tmp_path)
    none = SimpleNamespace(of=lambda uid, container: [])
    status = core_v1.PodStatus(
        container_statuses=[core_v1.ContainerStatus(name=f"c{number}") for number in range(containers)]
    )
    health.report(cast(Any, none), manager, pod, status, 0.0)
    found = [one for shown in status.container_statuses for one in shown.allocated_resources_status]
    assert sum(len(one.resources) for one in found) == reported
    assert all(one.resources for one in found)
    assert found[0].name == "claim:e0" and found[0].resources[0].resource_id == "gpu.example.com/pool/gpu-0"


def test_devices_of_plugins_count_too() -> None:
    given = Allocation("u", "c0", "example.com/gpu", {0: [f"gpu-{number}" for number in range(MOST + 5)]})
    plugins = SimpleNamespace(of=lambda uid, container: [given, given], health=lambda resource, name: "Healthy")
    pod = core_v1.Pod(
        metadata=meta_v1.ObjectMeta(uid="u"), spec=core_v1.PodSpec(containers=[core_v1.Container(name="c0")])
    )
    status = core_v1.PodStatus(container_statuses=[core_v1.ContainerStatus(name="c0")])
    health.report(cast(Any, plugins), None, pod, status, 0.0)
    assert [len(one.resources) for one in status.container_statuses[0].allocated_resources_status] == [MOST]
