"""Usage of a pod if the runtime reports it for containers only, and rates from two samples."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent.interfaces import PodView
from agent.usage.collector import Collector
from agent.usage.model import CPU, ContainerUse, Memory
from agent.usage.runtime_statistics import sum_cpu, sum_memory
from kube.api import core_v1, meta_v1
from tests.support.clock import FakeClock


def container(name: str, cpu: CPU, memory: Memory) -> ContainerUse:
    return ContainerUse(name, name, "i", 0.0, cpu, memory, 0, 0, 0, 0, 0)


def test_a_pod_uses_what_its_containers_use_together() -> None:
    found = [
        container("a", CPU(5.0, 100, 10), Memory(5.0, 1000, usage=2000, rss=500, available=1)),
        container("b", CPU(6.0, 300, None), Memory(6.0, 50, usage=60, rss=7, available=None)),
    ]
    assert sum_cpu(found) == CPU(6.0, 400, 10)
    assert sum_memory(found) == Memory(6.0, 1050, usage=2060, rss=507)


def test_a_pod_without_running_containers_has_no_usage() -> None:
    assert sum_cpu([]) is None
    assert sum_memory([]) is None


@pytest.mark.parametrize("step", [0.0, -3600.0, 3600.0])
def test_a_step_of_the_clock_spoils_one_rate(step: float) -> None:
    nowhere, nothing = Path("/nowhere"), cast(Any, None)
    collector = Collector(
        nothing, nothing, FakeClock(), node_name="n", root_dir=nowhere, pods_dir=nowhere, logs_dir=nowhere
    )
    rates = []
    times = [0.0, 10.0, 20.0 + step, 30.0 + step, 40.0 + step]
    for at, seconds in zip(times, [0, 5, 10, 18, 26], strict=True):
        found: dict[str, CPU] = {}
        rates.append(collector._rated("c", CPU(at, seconds * 1_000_000_000), found).nano_cores)
        collector._cpu = found
    assert rates[:2] == [None, 500_000_000]
    assert rates[3:] == [800_000_000, 800_000_000]


async def test_the_files_of_a_pod_of_which_nothing_runs_count_until_they_are_removed(
    tmp_path: Path,
) -> None:
    views = {}
    for uid, more in {"ending": {}, "released": {"released": True}, "starting": {"terminating": False}}.items():
        folder = tmp_path / uid / "volumes/kubernetes.io~empty-dir/d"
        folder.mkdir(parents=True)
        (folder / "x").write_bytes(bytes(1 << 20))
        pod = core_v1.Pod(metadata=meta_v1.ObjectMeta(name=uid, namespace="n", uid=uid))
        views[uid] = PodView(pod, (), None, **{"terminating": True, **more})

    async def nothing() -> list[object]:
        return []

    runtime = SimpleNamespace(list_pod_sandbox_stats=nothing)
    client = cast(Any, SimpleNamespace(runtime=runtime, images=SimpleNamespace(image_fs_info=nothing)))
    pods = cast(Any, SimpleNamespace(views=lambda: list(views.values())))
    collector = Collector(
        client, pods, FakeClock(), node_name="n", root_dir=tmp_path, pods_dir=tmp_path, logs_dir=tmp_path
    )
    found = await collector.snapshot()
    assert found.pods == ()
    ((name, used),) = [(each.name, dict(each.volumes)["d"].used) for each in found.ending]
    assert name == "ending" and used >= 1 << 20
