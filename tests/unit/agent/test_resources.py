"""Containers' and pods' cgroups: shares, quotas, memory, huge pages, swap, scores, and what is kept from pods."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent import configure
from agent.cgroups import node_allocatable, qos, swap
from agent.cgroups.cgroupfs import Limits
from agent.cgroups.node_allocatable import Enforcement
from agent.cgroups.tree import Cgroups, pod_limits
from agent.flags import Flags
from agent.kubelet_configuration import ConfigError, parse
from agent.managers.run_options import RunOptions
from agent.podspec.containers import ResourceRules, add_run_options, container_resources
from cri.messages import ContainerConfig, LinuxContainerResources
from kube.api import core_v1
from tests.unit.agent.pods import pod

GIB = 1 << 30
HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"


def sized(limits: dict[str, str] | None = None, requests: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    return {"name": "main", "resources": {"limits": limits or {}, "requests": requests or {}}, **more}


def made(given: core_v1.Pod, *, exclusive: bool = False, **rules: Any) -> LinuxContainerResources:
    fixed = ResourceRules(**{"memory_capacity": 4 * GIB, **rules})
    return container_resources(given, given.spec.containers[0], fixed, static=False, exclusive=exclusive)


@pytest.mark.parametrize(
    ("container", "rules", "shares", "quota", "memory"),
    [
        (sized(), {}, 2, 0, 0),
        (sized({"cpu": "500m", "memory": "64Mi"}), {}, 512, 50_000, 64 << 20),
        (sized({"cpu": "2"}, {"cpu": "250m"}), {}, 256, 200_000, 0),
        (sized({"cpu": "1m"}), {}, 2, 1000, 0),
        (sized({"cpu": "500m"}), {"cfs_quota": False}, 512, 0, 0),
        (sized({"cpu": "500m"}), {"period_us": 10_000}, 512, 5_000, 0),
        (sized({"cpu": "1"}), {"exclusive": True}, 1024, -1, 0),
    ],
)
def test_requests_and_limits_become_shares_and_quotas(
    container: dict[str, Any], rules: dict[str, Any], shares: int, quota: int, memory: int
) -> None:
    found = made(pod(container), **rules)
    assert (found.cpu_shares, found.cpu_quota, found.memory_limit_in_bytes) == (shares, quota, memory)


def test_a_container_without_limits_may_use_the_pods() -> None:
    whole = {"limits": {"cpu": "1", "memory": "1Gi"}}
    found = made(pod(sized(), resources=whole))
    assert (found.cpu_quota, found.memory_limit_in_bytes) == (100_000, GIB)
    found = made(pod(sized({"cpu": "500m", "memory": "64Mi"}), resources=whole))
    assert (found.cpu_quota, found.memory_limit_in_bytes) == (50_000, 64 << 20)


def test_unrequested_huge_pages_cannot_be_used() -> None:
    given = pod(sized({"hugepages-2Mi": "4Mi", "memory": "64Mi"}))
    found = {limit.page_size: limit.limit for limit in made(given, huge_page_sizes=("2Mi", "1Gi")).hugepage_limits}
    assert found == {"2MB": 4 << 20, "1GB": 0}


@pytest.mark.parametrize(
    ("rules", "group"),
    [({}, None), ({"cgroup_v2": True}, "1"), ({"cgroup_v2": True, "single_process_oom_kill": True}, None)],
)
def test_a_container_out_of_memory_dies_as_a_whole_where_the_kernel_can(
    rules: dict[str, Any], group: str | None
) -> None:
    assert made(pod(), **rules).unified.get("memory.oom.group") == group


def test_debug_containers_rank_with_their_pod() -> None:
    debug = core_v1.EphemeralContainer(name="debug")
    rules = ResourceRules(memory_capacity=GIB)
    guaranteed = pod(sized({"cpu": "1", "memory": "1Gi"}))
    assert container_resources(guaranteed, debug, rules, static=False).oom_score_adj == -997
    assert container_resources(pod(sized(None, {"cpu": "1"})), debug, rules, static=False).oom_score_adj == 999


def test_what_a_pod_requests_beyond_its_containers_counts_for_each_of_them() -> None:
    two = [sized(None, {"memory": "100Mi"}), {"name": "b"}]
    given = pod(*two, resources={"requests": {"memory": "500Mi"}})
    scores = [qos.oom_score_adj(given, container, 1000 << 20) for container in given.spec.containers]
    assert scores == [700, 800]


# -- swap ---------------------------------------------------------------------------------------------------------------
BURSTABLE = sized({"memory": "2Gi"}, {"memory": "1Gi"})


@pytest.mark.parametrize(
    ("container", "behavior", "bytes_", "more"),
    [
        (BURSTABLE, swap.LIMITED_SWAP, GIB // 2, {}),
        (BURSTABLE, swap.NO_SWAP, 0, {}),
        (sized(None, {"memory": "1Gi"}), swap.LIMITED_SWAP, GIB // 2, {}),
        (sized({"cpu": "1", "memory": "1Gi"}), swap.LIMITED_SWAP, 0, {}),  # guaranteed
        (sized(), swap.LIMITED_SWAP, 0, {}),  # best effort
        (sized(None, {"cpu": "1"}), swap.LIMITED_SWAP, 0, {}),  # asks for no memory
        (sized({"memory": "1Gi"}, {"memory": "1Gi"}), swap.LIMITED_SWAP, 0, {}),
        (BURSTABLE, swap.LIMITED_SWAP, 0, {"priority": 2_000_001_000}),
    ],
)
def test_swap_is_shared_out_by_requests(container: dict[str, Any], behavior: str, bytes_: int, more: Any) -> None:
    given = pod(container, **more)
    first = given.spec.containers[0]
    assert swap.limit(given, first, behavior, 4 * GIB, 2 * GIB, static=False) == bytes_
    assert swap.limit(given, first, behavior, 4 * GIB, 2 * GIB, static=True) == 0


def test_swap_is_bounded_where_the_kernel_can() -> None:
    rules = {"swap_behavior": swap.LIMITED_SWAP, "swap_capacity": 2 * GIB}
    found = made(pod(BURSTABLE), cgroup_v2=True, swap_controller=True, **rules)
    assert found.unified["memory.swap.max"] == str(GIB // 2)
    assert found.memory_swap_limit_in_bytes == 2 * GIB + GIB // 2
    assert made(pod(), cgroup_v2=True, swap_controller=True).unified["memory.swap.max"] == "0"
    old = made(pod(BURSTABLE), **rules)  # cgroup v1: nothing is said of swap
    assert "memory.swap.max" not in old.unified and old.memory_swap_limit_in_bytes == 0


# -- what pods may take together ---------------------------------------------------------------------------------------
KUBE, SYSTEM = {"cpu": "500m", "memory": "1Gi"}, {"cpu": "500m", "memory": "512Mi", "pid": "100"}


def test_pods_get_what_is_not_reserved() -> None:
    machine = {"cpus": 4, "memory": 8 * GIB, "pids": 32768}
    bound = node_allocatable.pods_limits(Enforcement(), KUBE, SYSTEM, **machine)
    assert bound == Limits(cpu_shares=3072, memory=8 * GIB - GIB - GIB // 2, pids=32668)
    unbound = node_allocatable.pods_limits(Enforcement(frozenset()), KUBE, SYSTEM, **machine)
    assert unbound == Limits(cpu_shares=4096, memory=8 * GIB, pids=32768)


@pytest.mark.parametrize("version", [1, 2])
async def test_reserved_cgroups_are_bound(tmp_path: Path, version: int) -> None:
    if version == 2:
        (tmp_path / "cgroup.controllers").write_text("cpu memory pids")
        folders = dict.fromkeys(("cpu", "memory", "pids"), tmp_path)
        names = ("cpu.weight", "memory.max", "pids.max")
        kube, system = ("59", str(GIB), None), ("59", None, None)
    else:
        folders = {name: tmp_path / name for name in ("cpu", "memory", "pids")}
        names = ("cpu.shares", "memory.limit_in_bytes", "pids.max")
        kube, system = ("512", str(GIB), None), ("512", None, None)
    for folder in folders.values():
        for name in ("kube", "system"):
            (folder / "agents" / name).mkdir(parents=True, exist_ok=True)
            (folder / "agents" / name / "cgroup.procs").touch()
    groups = Cgroups("/", "cgroupfs", mount=tmp_path)
    options = frozenset({"pods", "kube-reserved", "system-reserved-compressible"})
    await node_allocatable.enforce(Enforcement(options, "/agents/kube", "/agents/system"), groups, KUBE, SYSTEM)

    def found(role: str) -> tuple[str | None, ...]:
        files = [folder / "agents" / role / name for folder, name in zip(folders.values(), names, strict=True)]
        return tuple(file.read_text() if file.exists() else None for file in files)

    assert (found("kube"), found("system")) == (kube, system)
    missing = Enforcement(frozenset({"kube-reserved"}), "/agents/none")
    with pytest.raises(ConfigError, match='Failed to enforce Kube Reserved Cgroup Limits on "/agents/none"'):
        await node_allocatable.enforce(missing, groups, KUBE, SYSTEM)


async def test_a_pods_cgroup_bounds_its_huge_pages(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("hugetlb")
    groups = Cgroups("/", "cgroupfs", mount=tmp_path)
    given = pod(sized({"hugepages-2Mi": "4Mi", "memory": "64Mi"}))
    folder = tmp_path / groups.pod_path(given)
    folder.mkdir(parents=True)
    for size in ("2MB", "1GB"):
        (folder / f"hugetlb.{size}.max").write_text("max")
        (folder / f"hugetlb.{size}.rsvd.max").write_text("max")
    await groups.ensure_pod(given, pod_limits(given, cfs_quota=True, period_us=100_000, pids=-1))
    found = {file.name: file.read_text() for file in folder.glob("hugetlb.*.max")}
    assert found == {
        "hugetlb.2MB.max": str(4 << 20),
        "hugetlb.1GB.max": "0",
        "hugetlb.2MB.rsvd.max": "max",
        "hugetlb.1GB.rsvd.max": "max",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("enforceNodeAllocatable: [nodes]", 'option "nodes" specified for enforceNodeAllocatable'),
        ("enforceNodeAllocatable: [none, pods]", 'may not contain additional enforcements when "none" is specified'),
        ("enforceNodeAllocatable: [kube-reserved]", "kubeReservedCgroup (--kube-reserved-cgroup) must be specified"),
        ("enforceNodeAllocatable: [system-reserved-compressible]", "systemReservedCgroup (--system-reserved-cgroup)"),
        (
            "enforceNodeAllocatable: [kube-reserved, kube-reserved-compressible]\nkubeReservedCgroup: /k",
            "cannot be specified together",
        ),
        ("cgroupsPerQOS: false", "is not supported unless cgroupsPerQOS"),
        ("memorySwap: {swapBehavior: UnlimitedSwap}", 'memorySwap.swapBehavior "UnlimitedSwap" must be one of'),
    ],
)
def test_settings_that_do_not_fit_are_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        configure.build(parse(HEAD + text)[0], Flags())
    assert message in str(refused.value)


def test_settings_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configure, "is_v2", lambda: True)
    text = "enforceNodeAllocatable: [none]\nmemorySwap: {swapBehavior: LimitedSwap}\nsingleProcessOOMKill: true\n"
    found = configure.build(parse(HEAD + text)[0], Flags())
    assert (found.enforcement, found.swap_behavior) == (Enforcement(frozenset()), swap.LIMITED_SWAP)
    assert found.single_process_oom_kill
    assert not configure.build(parse(HEAD)[0], Flags()).single_process_oom_kill
    monkeypatch.setattr(configure, "is_v2", lambda: False)
    assert configure.build(parse(HEAD)[0], Flags()).single_process_oom_kill
    with pytest.raises(ConfigError, match="singleProcessOOMKill must not be explicitly set to false"):
        configure.build(parse(HEAD + "singleProcessOOMKill: false")[0], Flags())


def test_a_device_plugin_sets_none_of_the_annotations_that_the_agent_reads() -> None:
    own = {"io.kubernetes.container.restartCount": "3"}
    config = ContainerConfig(annotations=own)
    others = {"vendor.example/slot": "1", "io.kubernetes.cri-o.Devices": "/dev/null"}
    read = ("container.restartCount", "container.terminationMessagePath", "pod.deletionGracePeriod")
    add_run_options(config, RunOptions(annotations={**{f"io.kubernetes.{name}": "0" for name in read}, **others}))
    assert dict(config.annotations) == {**own, **others}


_NAMES = st.sampled_from(["cpu", "memory", "example.com/gpu"])
_AMOUNTS = st.dictionaries(_NAMES, st.integers(0, 9).map(str), max_size=3)
_RESOURCES = st.fixed_dictionaries({"requests": _AMOUNTS, "limits": _AMOUNTS})
_CONTAINER = st.fixed_dictionaries({"name": st.just("c"), "resources": _RESOURCES})
_INIT = st.fixed_dictionaries(
    {"name": st.just("i"), "resources": _RESOURCES}, optional={"restartPolicy": st.just("Always")}
)


@given(
    st.lists(_CONTAINER, max_size=3),
    st.lists(_INIT, max_size=3),
    _AMOUNTS,
    st.none() | st.fixed_dictionaries({"requests": _AMOUNTS}),
)
def test_a_pod_requests_of_each_resource_what_its_containers_take_at_once_at_most(
    containers: list[Any], init: list[Any], overhead: dict[str, str], whole: dict[str, Any] | None
) -> None:
    spec = {"containers": containers, "initContainers": init, "overhead": overhead, "resources": whole}
    found = msgspec.convert({"metadata": {"name": "p"}, "spec": spec}, core_v1.Pod)
    sums = qos.pod_requests(found)
    for name in ("cpu", "memory", "example.com/gpu", "other"):

        def of(container: dict[str, Any], name: str = name) -> int:
            resources = container["resources"]
            return int(resources["requests"].get(name, resources["limits"].get(name, 0)))

        sidecars = [of(c) * ("restartPolicy" in c) for c in init]
        steps = [of(c) + sum(sidecars[:n]) for n, c in enumerate(init)]
        most = max([sum(map(of, containers)) + sum(sidecars), *steps])
        if whole is not None and name in whole["requests"]:
            most = int(whole["requests"][name])
        wanted = (most + int(overhead.get(name, 0))) * (1000 if name == "cpu" else 1)
        assert sums.get(name, 0) == qos.pod_request(found, name) == wanted
