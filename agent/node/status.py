"""Forms the Node object as a kubelet does: capacity, conditions, addresses, system info. Pure (pkg/kubelet/nodestatus)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import msgspec

from agent.config import AgentConfig
from agent.node.machine import Machine
from kube.api import core_v1
from kube.quantity import milli, parse, value

KUBELET_VERSION = "v1.36.2+wherry"
DECLARED_FEATURES = (
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
    "RestartAllContainersOnContainerExits",
)
"""Features of the agent that upstream's API server and scheduler require of a node before they use them (KEP-5328)."""
_PRESSURES = tuple(
    (kind, f"KubeletHas{good}", f"kubelet has {good_text}", f"KubeletHas{bad}", f"kubelet has {bad_text}")
    for kind, good, good_text, bad, bad_text in (
        (
            "MemoryPressure",
            "SufficientMemory",
            "sufficient memory available",
            "InsufficientMemory",
            "insufficient memory available",
        ),
        ("DiskPressure", "NoDiskPressure", "no disk pressure", "DiskPressure", "disk pressure"),
        ("PIDPressure", "SufficientPID", "sufficient PID available", "InsufficientPID", "insufficient PID available"),
    )
)


@dataclass(frozen=True, slots=True)
class RuntimeFacts:
    """Facts of the container runtime."""

    name: str = ""
    version: str = ""
    unready: str = "container runtime status check may not have completed yet"
    """Reason why the runtime cannot run pods; "" if it can."""
    handlers: tuple[core_v1.NodeRuntimeHandler, ...] = ()
    features: core_v1.NodeFeatures | None = None
    images: tuple[core_v1.ContainerImage, ...] = field(default=())


def capacity(machine: Machine, config: AgentConfig) -> dict[str, str | int | float]:
    """Return what the machine has."""
    result: dict[str, str | int | float] = {
        "cpu": str(machine.cpus),
        "ephemeral-storage": f"{machine.disk // 1024}Ki",
        "memory": f"{machine.memory // 1024}Ki",
        "pods": str(config.max_pods),
    }
    for size, amount in machine.huge_pages.items():
        result[f"hugepages-{size}"] = _mebibytes(amount)
    return dict(sorted(result.items()))


def allocatable(machine: Machine, config: AgentConfig) -> dict[str, str | int | float]:
    """Return what pods may have: capacity less reservations and hard eviction thresholds."""
    result = capacity(machine, config)
    exact = config.managers.reserved_cpus
    cpu = machine.cpus * 1000 - (1000 * len(exact) if exact else milli(str(_reserved(config, "cpu"))))
    result["cpu"] = str(cpu // 1000) if cpu % 1000 == 0 else f"{cpu}m"
    huge = sum(machine.huge_pages.values())
    memory = machine.memory // 1024 * 1024 - int(_reserved(config, "memory")) - huge
    memory -= threshold(config.eviction.hard.get("memory.available", "0"), machine.memory)
    result["memory"] = f"{max(memory, 0) // 1024}Ki"
    for size, amount in machine.huge_pages.items():
        result[f"hugepages-{size}"] = _mebibytes(max(amount - int(_reserved(config, f"hugepages-{size}")), 0))
    disk = machine.disk // 1024 * 1024
    reserve = threshold(config.eviction.hard.get("nodefs.available", "0"), disk)
    result["ephemeral-storage"] = str(max(disk - reserve - int(_reserved(config, "ephemeral-storage")), 0))
    return result


def threshold(text: str, total: int) -> int:
    """Return an eviction threshold in bytes: a quantity, or a percentage of the total."""
    if text.endswith("%"):
        return int(Decimal(text[:-1]) * total / 100)
    return value(text)


def reserved_cpus(config: AgentConfig) -> int:
    """Return how many whole processors the reservations take."""
    return -(-milli(str(_reserved(config, "cpu"))) // 1000)


def _reserved(config: AgentConfig, name: str) -> Decimal:
    return parse(config.kube_reserved.get(name, "0")) + parse(config.system_reserved.get(name, "0"))


def _mebibytes(amount: int) -> str:
    if amount == 0:
        return "0"
    return f"{amount // 2**30}Gi" if amount % 2**30 == 0 else f"{amount // 2**20}Mi"


def labels(machine: Machine, config: AgentConfig) -> dict[str, str]:
    """Return the labels that the agent keeps on its node."""
    return {
        "beta.kubernetes.io/arch": machine.architecture,
        "beta.kubernetes.io/os": "linux",
        "kubernetes.io/arch": machine.architecture,
        "kubernetes.io/hostname": config.node_name,
        "kubernetes.io/os": "linux",
        **config.node_labels,
    }


def node_status(
    machine: Machine,
    config: AgentConfig,
    runtime: RuntimeFacts,
    addresses: Sequence[str],
    old: core_v1.NodeStatus,
    now: str,
    pressures: Mapping[str, bool] | None = None,
) -> core_v1.NodeStatus:
    """Return the node's whole status; conditions keep their transition times from the old one."""
    return core_v1.NodeStatus(
        addresses=[core_v1.NodeAddress(type="InternalIP", address=ip) for ip in addresses]
        + [core_v1.NodeAddress(type="Hostname", address=config.node_name)],
        capacity=capacity(machine, config),
        allocatable=allocatable(machine, config),
        conditions=_conditions(runtime, old.conditions, now, pressures or {}),
        daemon_endpoints=core_v1.NodeDaemonEndpoints(kubelet_endpoint=core_v1.DaemonEndpoint(port=config.port)),
        node_info=core_v1.NodeSystemInfo(
            architecture=machine.architecture,
            boot_id=machine.boot_id,
            container_runtime_version=f"{runtime.name}://{runtime.version}" if runtime.name else "",
            kernel_version=machine.kernel,
            kubelet_version=KUBELET_VERSION,
            machine_id=machine.machine_id,
            operating_system="linux",
            os_image=machine.os_image,
            swap=core_v1.NodeSwapStatus(capacity=machine.swap) if machine.swap else None,
            system_uuid=machine.system_uuid,
        ),
        images=list(runtime.images),
        runtime_handlers=list(runtime.handlers),
        features=runtime.features,
        declared_features=list(DECLARED_FEATURES),
        volumes_attached=old.volumes_attached,
        volumes_in_use=old.volumes_in_use,
    )


def _conditions(
    runtime: RuntimeFacts, old: Sequence[core_v1.NodeCondition], now: str, pressures: Mapping[str, bool]
) -> list[core_v1.NodeCondition]:
    wanted = []
    for kind, good, good_text, bad, bad_text in _PRESSURES:
        under = pressures.get(kind, False)
        wanted.append(
            core_v1.NodeCondition(
                type=kind,
                status="True" if under else "False",
                reason=bad if under else good,
                message=bad_text if under else good_text,
            )
        )
    wanted.append(
        core_v1.NodeCondition(
            type="Ready",
            status="False" if runtime.unready else "True",
            reason="KubeletNotReady" if runtime.unready else "KubeletReady",
            message=runtime.unready or "kubelet is posting ready status",
        )
    )
    before = {condition.type: condition for condition in old}
    for condition in wanted:
        known = before.get(condition.type)
        same = known is not None and known.status == condition.status
        condition.last_heartbeat_time = now
        condition.last_transition_time = known.last_transition_time if known is not None and same else now
    ours = {condition.type for condition in wanted}
    return [c for c in old if c.type not in ours] + wanted


def changed(old: core_v1.NodeStatus, new: core_v1.NodeStatus) -> bool:
    """Return whether anything but the heartbeat times differs."""
    return _without_heartbeat(old) != _without_heartbeat(new)


def _without_heartbeat(status: core_v1.NodeStatus) -> core_v1.NodeStatus:
    conditions = [msgspec.structs.replace(c, last_heartbeat_time=None) for c in status.conditions]
    return msgspec.structs.replace(status, conditions=conditions)


def patch(old: core_v1.NodeStatus, new: core_v1.NodeStatus) -> dict[str, Any]:
    """Return the strategic merge patch of the status' fields that differ."""
    before, after = msgspec.to_builtins(old), msgspec.to_builtins(new)
    result: dict[str, Any] = {}
    for name in before.keys() | after.keys():
        if before.get(name) == after.get(name):
            continue
        result[name] = after.get(name)
        if name == "conditions":
            # Merged by type. Those that did not change may be of others, who have changed them meanwhile.
            result[name] = [condition for condition in after[name] if condition not in before.get(name, [])]
        if name == "addresses" and before.get(name):
            # Merged by type otherwise, which would lose the second of two addresses of a type.
            result[name] = [*after.get(name, []), {"$patch": "replace"}]
    return result
