"""Pods over the limits of disk space that they set themselves: of a volume, of all containers, of one container."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from agent.eviction import local_storage
from agent.eviction.image_filesystem import ImageFilesystem
from agent.usage.model import PodUse
from cri.client import Client
from kube.api import core_v1
from tests.support.evictions import Runtime, SlowToEnd, evictions, pod, use

LIMIT: dict[str, Any] = {"resources": {"limits": {"ephemeral-storage": "10"}}}


@pytest.mark.parametrize(
    ("spec", "used", "message"),
    [
        (LIMIT, use("p", rootfs=6, logs=4), None),
        (
            LIMIT,
            use("p", rootfs=6, logs=5),
            "Pod ephemeral local storage usage exceeds the total limit of containers 10. ",
        ),
        (
            LIMIT | {"volumes": [{"name": "d", "emptyDir": {}}]},
            use("p", rootfs=6, d=5),
            "Pod ephemeral local storage usage exceeds the total limit of containers 10. ",
        ),
        (
            LIMIT,
            dataclasses.replace(use("p", rootfs=6), files=(5, 2)),
            "Pod ephemeral local storage usage exceeds the total limit of containers 10. ",
        ),
        (
            {"volumes": [{"name": "d", "emptyDir": {"sizeLimit": "3"}}]},
            use("p", d=4),
            'Usage of EmptyDir volume "d" exceeds the limit "3". ',
        ),
        ({"volumes": [{"name": "d", "emptyDir": {"sizeLimit": "3", "medium": "Memory"}}]}, use("p", d=4), None),
    ],
)
def test_a_pod_over_its_own_limit_ends(spec: dict[str, Any], used: PodUse, message: str | None) -> None:
    found = local_storage.excess(pod("p", **spec), used)
    assert (found[0].message if found else None) == message


def test_one_container_over_its_limit_is_named_though_the_sum_is_kept() -> None:
    body = {
        "metadata": {"name": "p"},
        "spec": {
            "containers": [
                {"name": "c", "resources": {"limits": {"ephemeral-storage": "10"}}},
                {"name": "other", "resources": {"limits": {"ephemeral-storage": "90"}}},
            ]
        },
    }
    found = local_storage.excess(msgspec.convert(body, core_v1.Pod), use("p", rootfs=11))
    assert found is not None and found[1] == "ephemeralcontainerfs.limit"
    assert found[0].message == 'Container c exceeded its local ephemeral storage limit "10". '


@pytest.mark.parametrize(
    ("folder", "used", "ends"),
    [
        ("/", use("p", rootfs=6, logs=5), True),
        ("/proc", use("p", rootfs=11, logs=10), False),
        ("/proc", use("p", logs=11), True),
    ],
)
async def test_a_containers_limit_is_for_its_logs_if_images_and_layers_have_a_disk_of_their_own(
    folder: str, used: PodUse, ends: bool
) -> None:
    pods = SlowToEnd("p")
    limited = pod("p", **LIMIT)
    other = core_v1.ResourceRequirements(limits={"ephemeral-storage": "90"})
    limited.spec.containers.append(core_v1.Container(name="other", resources=other))
    pods.found["p"] = msgspec.structs.replace(pods.found["p"], pod=limited)
    images = ImageFilesystem(cast(Client, Runtime(Path(folder))), Path("/"))
    await evictions(pods, {}, dict, used, images=images).check()
    assert pods.messages == (['Container c exceeded its local ephemeral storage limit "10". '] if ends else [])


@pytest.mark.parametrize(
    ("containers", "overhead", "used", "limit"),
    [
        ({"c": "10", "sidecar": "40"}, {}, 50, None),
        ({"c": "10", "sidecar": "40"}, {}, 51, "50"),
        ({"sidecar": "40"}, {}, 41, "40"),
        ({"c": "10", "init": "40"}, {}, 40, None),
        ({"c": "10", "init": "40"}, {}, 41, "40"),
        ({"c": "10"}, {"ephemeral-storage": "5"}, 15, None),
        ({"c": "10"}, {"ephemeral-storage": "5"}, 16, "15"),
        ({}, {"ephemeral-storage": "5"}, 16, None),
    ],
)
def test_the_limit_of_a_pod_is_that_of_all_its_containers_and_its_overhead(
    containers: dict[str, str], overhead: dict[str, str], used: int, limit: str | None
) -> None:
    def container(name: str) -> core_v1.Container:
        limits = {"ephemeral-storage": containers[name]} if name in containers else {}
        policy = "Always" if name == "sidecar" else None
        return core_v1.Container(
            name=name, resources=core_v1.ResourceRequirements(limits=limits), restart_policy=policy
        )

    found = pod("p")
    found.spec.containers = [container("c")]
    found.spec.init_containers = [container("init"), container("sidecar")]
    found.spec.overhead = overhead
    assert local_storage.limited(found) is bool(containers)
    end = local_storage.excess(found, dataclasses.replace(use("p"), files=(used, 1)))
    text = f"Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "
    assert (end[0].message if end else None) == (text if limit else None)


def test_only_pods_with_limits_are_watched() -> None:
    assert local_storage.limited(pod("p", **LIMIT))
    assert not local_storage.limited(pod("p", requests={"ephemeral-storage": "1Gi"}))


@pytest.mark.parametrize(
    ("state", "ends"),
    [
        ({}, True),
        ({"terminating": True}, True),
        ({"containers": ()}, True),
        ({"terminating": True, "shortened": True}, False),
        ({"containers": (), "terminating": True, "released": True}, False),
    ],
)
async def test_limits_of_a_pods_disk_hold_until_its_resources_are_released(state: dict[str, Any], ends: bool) -> None:
    pods = SlowToEnd("p")
    pods.found["p"] = msgspec.structs.replace(pods.found["p"], pod=pod("p", **LIMIT), **state)
    loop = evictions(pods, {}, dict, use("p", rootfs=20))
    await loop.check()
    assert pods.evicted == (["p"] if ends else [])


@pytest.mark.parametrize(("priority", "static"), [(2_000_000_000, False), (0, True)])
async def test_no_limit_of_its_own_evicts_a_critical_pod(priority: int, static: bool) -> None:
    pods = SlowToEnd("p")
    pods.found["p"] = msgspec.structs.replace(pods.found["p"], pod=pod("p", priority, **LIMIT), static=static)
    assert not await evictions(pods, {}, dict, use("p", rootfs=20)).check() and not pods.evicted
