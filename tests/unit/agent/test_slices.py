"""Pods' cgroups as systemd's slices: names, properties, and finding them again."""

import dataclasses
from pathlib import Path

import pytest

from agent.cgroups import qos, slices
from agent.cgroups import tree as cgroups
from agent.cgroups.cgroupfs import Limits
from agent.cgroups.tree import Cgroups, pod_limits
from kube.api import core_v1


def pod(uid: str) -> core_v1.Pod:
    made = core_v1.Pod()
    made.metadata.uid = uid
    return made


def test_limits_become_properties_of_a_unit() -> None:
    limits = Limits(cpu_shares=512, cpu_quota=25_000, cpu_period=100_000, memory=64 << 20, pids=9)
    found = dict(p.split("=") for p in slices.properties(**dataclasses.asdict(limits)))
    assert found == {"CPUWeight": "59", "CPUQuota": "25%", "CPUQuotaPeriodSec": "100000us"} | {
        "MemoryMax": str(64 << 20),
        "TasksMax": "9",
    }


@pytest.mark.parametrize(
    ("shares", "weight"),
    [(0, 1), (2, 1), (3, 2), (102, 17), (1024, 100), (2000, 170), (262144, 10000), (1 << 20, 10000)],
)
def test_a_whole_processor_weighs_as_much_as_a_system_service(shares: int, weight: int) -> None:
    assert qos.cpu_weight(shares) == weight


def test_what_is_not_limited_is_set_free_again() -> None:
    found = dict(p.split("=") for p in slices.properties(**dataclasses.asdict(Limits())))
    assert found == {"CPUWeight": "1", "CPUQuota": "", "CPUQuotaPeriodSec": ""} | {
        "MemoryMax": "infinity",
        "TasksMax": "infinity",
    }


def test_a_thousandth_of_a_cpu_is_a_quota_still() -> None:
    limits = Limits(cpu_quota=1_000, cpu_period=1_000_000)
    assert "CPUQuota=0.1%" in slices.properties(**dataclasses.asdict(limits))


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("/system.slice", "system.slice"),
        ("system", "system.slice"),
        ("kube-reserved.slice", "kube.slice/kube-reserved.slice"),
        ("/kube.slice/kube-reserved.slice", "kube.slice/kube-reserved.slice"),
    ],
)
def test_a_reserved_slice_is_found_where_systemd_puts_it(name: str, path: str) -> None:
    assert slices.path_of(name) == path


async def test_a_pods_slice_is_created_by_name_and_found_by_uid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested = []

    async def note(name: str, wanted: list[str], *, strict: bool) -> None:
        requested.append(name)

    monkeypatch.setattr(cgroups.slices, "set_properties", note)
    (tmp_path / "cgroup.controllers").touch()
    groups = Cgroups("/", "systemd", mount=tmp_path)
    given = pod("0b6a-77")
    await groups.ensure_pod(given, pod_limits(given, cfs_quota=True, period_us=100_000, pids=-1))
    assert requested == ["kubepods-besteffort-pod0b6a_77.slice"]
    assert groups.pod_uids() == {}
    (tmp_path / groups.pod_path(given)).mkdir(parents=True)
    assert groups.pod_uids() == {"0b6a-77": groups.pod_path(given)}


@pytest.mark.parametrize("driver", ["cgroupfs", "systemd"])
def test_no_annotation_chooses_a_pods_cgroup(tmp_path: Path, driver: str) -> None:
    groups = Cgroups("/", driver, mount=tmp_path)
    given = pod("0b6a-77")
    expected = groups.pod_path(given)
    given.metadata.annotations["kubernetes.io/config.hash"] = "../../../system"
    assert groups.pod_path(given) == expected
