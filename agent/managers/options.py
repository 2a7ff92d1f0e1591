"""The managers' settings, from KubeletConfiguration's fields by upstream's rules (kubelet/apis/config/validation)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from agent.kubelet_configuration import ConfigError, KubeletConfiguration
from agent.managers import cpuset
from agent.managers.cpuset import CPUSet
from kube import duration
from kube.quantity import QuantityError, parse

_CPU_OPTIONS = (
    "full-pcpus-only",
    "distribute-cpus-across-numa",
    "strict-cpu-reservation",
    "prefer-align-cpus-by-uncorecache",
)
_CPU_ALPHA = ("align-by-socket", "distribute-cpus-across-cores")
_TOPOLOGY_OPTIONS = ("prefer-closest-numa-nodes", "max-allowable-numa-nodes")
TOPOLOGY_POLICIES = ("none", "best-effort", "restricted", "single-numa-node")
DEFAULT_NODES = 8
"""More NUMA nodes than this have too many sets, unless max-allowable-numa-nodes allows them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerOptions:
    """Settings of the resource managers."""

    cpu_policy: str = "none"
    cpu_options: Mapping[str, bool] = field(default_factory=dict)
    cpu_period: float = 10.0
    """Seconds between repairs of what containers may run on."""
    memory_policy: str = "None"
    reserved_memory: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    topology_policy: str = "none"
    topology_scope: str = "container"
    closest_nodes: bool = False
    most_nodes: int = DEFAULT_NODES
    reserved_cpus: CPUSet = frozenset()
    """reservedSystemCPUs: these and no others; empty where only their number is given."""

    @property
    def idle(self) -> bool:
        """True if nothing is managed at all."""
        return (self.cpu_policy, self.memory_policy, self.topology_policy) == ("none", "None", "none")


def read(file: KubeletConfiguration) -> ManagerOptions:
    """Check the fields and turn them into settings. Raise ConfigError naming the field."""
    if file.cpu_manager_policy not in ("", "none", "static"):
        raise ConfigError(f'invalid configuration: cpuManagerPolicy: unknown policy: "{file.cpu_manager_policy}"')
    memory_policy = file.memory_manager_policy or "None"
    if memory_policy not in ("None", "Static"):
        raise ConfigError(f'invalid configuration: unknown memoryManagerPolicy: "{memory_policy}"')
    if file.topology_manager_policy not in TOPOLOGY_POLICIES:
        raise ConfigError(
            f'invalid configuration: topologyManagerPolicy (--topology-manager-policy) "{file.topology_manager_policy}" '
            f"must be one of: {list(TOPOLOGY_POLICIES)}"
        )
    if file.topology_manager_scope not in ("container", "pod"):
        raise ConfigError(
            f'invalid configuration: topologyManagerScope (--topology-manager-scope) "{file.topology_manager_scope}" '
            'must be one of: "container", or "pod"'
        )
    reserved_cpus = _reserved_cpus(file)
    cpu_policy = file.cpu_manager_policy or "none"
    options = _cpu_options(file, cpu_policy)
    count = parse(file.kube_reserved.get("cpu", "0")) + parse(file.system_reserved.get("cpu", "0"))
    if cpu_policy == "static" and not reserved_cpus and count <= 0:
        raise ConfigError("the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero")
    closest, most = _topology_options(file)
    return ManagerOptions(
        cpu_policy=cpu_policy,
        cpu_options=options,
        cpu_period=_seconds(file.cpu_manager_reconcile_period),
        memory_policy=memory_policy,
        reserved_memory=_reserved_memory(file, memory_policy),
        topology_policy=file.topology_manager_policy,
        topology_scope=file.topology_manager_scope,
        closest_nodes=closest,
        most_nodes=most,
        reserved_cpus=reserved_cpus,
    )


def _seconds(text: str) -> float:
    try:
        found = duration.parse(text)
    except ValueError as error:
        raise ConfigError(f"cpuManagerReconcilePeriod: invalid duration {text!r}") from error
    return found if found > 0 else 10.0


def _reserved_cpus(file: KubeletConfiguration) -> CPUSet:
    text = file.reserved_system_cpus
    if not text:
        return frozenset()
    if file.system_reserved_cgroup or file.kube_reserved_cgroup:
        raise ConfigError(
            "invalid configuration: can't use reservedSystemCPUs (--reserved-cpus) with systemReservedCgroup "
            "(--system-reserved-cgroup) or kubeReservedCgroup (--kube-reserved-cgroup)"
        )
    try:
        return cpuset.parse(text)
    except ValueError as error:
        raise ConfigError(
            f'invalid configuration: unable to parse reservedSystemCPUs (--reserved-cpus) "{text}", error: {error}'
        ) from error


def _cpu_options(file: KubeletConfiguration, policy: str) -> dict[str, bool]:
    found = {}
    for name, text in file.cpu_manager_policy_options.items():
        if policy != "static":
            raise ConfigError(f"CPU Manager policy {policy} does not support options, but {name!r} was given")
        if name in _CPU_ALPHA:
            raise ConfigError(f'CPU Manager Policy Alpha-level Options not enabled, but option "{name}" provided')
        if name not in _CPU_OPTIONS:
            raise ConfigError(f'unknown CPU Manager Policy option: "{name}"')
        found[name] = _bool(name, text)
    if found.get("prefer-align-cpus-by-uncorecache") and found.get("distribute-cpus-across-numa"):
        raise ConfigError(
            "static policy options PreferAlignCpusByUncoreCache and DistributeCPUsAcrossNUMA can not be used at the "
            "same time"
        )
    return found


def _topology_options(file: KubeletConfiguration) -> tuple[bool, int]:
    closest, most = False, DEFAULT_NODES
    for name, text in file.topology_manager_policy_options.items():
        if name not in _TOPOLOGY_OPTIONS:
            raise ConfigError(f'unknown Topology Manager Policy option: "{name}"')
        if name == "prefer-closest-numa-nodes":
            closest = _bool(name, text)
        else:
            if not text.isdigit() or int(text) < DEFAULT_NODES:
                raise ConfigError(f"the minimum value of {name} should not be less than {DEFAULT_NODES}")
            most = int(text)
    return closest, most


def _bool(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false", "1", "0", "t", "f"):
        raise ConfigError(f'bad value for option "{name}": {text!r} is not a boolean')
    return text.lower() in ("true", "1", "t")


def _reserved_memory(file: KubeletConfiguration, policy: str) -> dict[int, dict[str, int]]:
    """Check reservedMemory (validation_reserved_memory.go) and that it adds up (memory_manager.go)."""
    found: dict[int, dict[str, int]] = {}
    for item in file.reserved_memory:
        for kind, text in item.limits.items():
            if kind != "memory" and not kind.startswith("hugepages-"):
                raise ConfigError(
                    f'invalid configuration: the limit type "{kind}" for NUMA node {item.numa_node} is not allowed, '
                    "only [memory hugepages-<HugePageSize>] are accepted"
                )
            amount = _quantity(f"reservedMemory[{item.numa_node}].{kind}", text)
            if amount == 0:
                raise ConfigError(
                    f'invalid configuration: the limit value is zero for reserved memory type "{kind}" of NUMA node '
                    f"{item.numa_node}"
                )
            if kind in found.setdefault(item.numa_node, {}):
                raise ConfigError(
                    f"invalid configuration: the reserved memory has a duplicate value for NUMA node {item.numa_node} "
                    f'and resource "{kind}"'
                )
            found[item.numa_node][kind] = int(amount)
    if policy == "Static":
        _check_sums(file, found)
    return found


def _check_sums(file: KubeletConfiguration, reserved: Mapping[int, Mapping[str, int]]) -> None:
    hard = (file.eviction_hard or {"memory.available": "100Mi"}).get("memory.available", "0")
    expected: dict[str, Decimal] = {}
    sources: Sequence[Mapping[str, str]] = (file.kube_reserved, file.system_reserved)
    for kind in {k for s in sources for k in s if k == "memory" or k.startswith("hugepages-")} | {"memory"}:
        expected[kind] = sum((parse(s.get(kind, "0")) for s in sources), Decimal(0))
    if not hard.endswith("%"):
        expected["memory"] += parse(hard)
    kinds = {kind for node in reserved.values() for kind in node} | {k for k, v in expected.items() if v}
    for kind in sorted(kinds):
        total = sum(node.get(kind, 0) for node in reserved.values())
        if total != expected.get(kind, 0):
            raise ConfigError(
                f'the total amount "{total}" of type "{kind}" is not equal to the value '
                f'"{int(expected.get(kind, Decimal(0)))}" determined by Node Allocatable feature'
            )


def _quantity(name: str, text: str | int) -> Decimal:
    try:
        return parse(text)
    except QuantityError as error:
        raise ConfigError(f"{name}: {error}") from error
