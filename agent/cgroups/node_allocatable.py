"""Limits pods as a whole, and the reserved cgroups of the system and the agent (enforceNodeAllocatable).

`pods` limits all pods to the machine less the reservations; `kube-reserved` and `system-reserved` limit the existing cgroups in
which those programs run; the `-compressible` ones only by CPU time (pkg/kubelet/cm/node_container_manager_linux.go).
Eviction thresholds are not subtracted here: the kernel's limit is the last resort.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agent.cgroups import qos
from agent.cgroups.cgroupfs import Limits
from agent.cgroups.tree import Cgroups
from agent.kubelet_configuration import ConfigError, KubeletConfiguration
from kube.quantity import milli, parse, value

PODS, NONE = "pods", "none"
_OPTIONS = (
    PODS,
    "system-reserved",
    "kube-reserved",
    "system-reserved-compressible",
    "kube-reserved-compressible",
)
Reserved = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Enforcement:
    """The limits to enforce, and the cgroups of the reserved programs."""

    options: frozenset[str] = frozenset({PODS})
    kube_cgroup: str = ""
    system_cgroup: str = ""


def read(file: KubeletConfiguration) -> Enforcement:
    """Check the fields by upstream's rules. Raise ConfigError."""
    given = file.enforce_node_allocatable
    what = "enforceNodeAllocatable (--enforce-node-allocatable)"
    options = frozenset(given) - {"", NONE}
    if NONE in given and len(given) > 1:
        raise ConfigError(
            f'invalid configuration: {what} may not contain additional enforcements when "none" is specified'
        )
    for option in given:
        if option not in (*_OPTIONS, NONE, ""):
            raise ConfigError(
                f'invalid configuration: option "{option}" specified for {what}. Valid options are '
                f"{', '.join(map('{!r}'.format, _OPTIONS))} or 'none'"
            )
    for role, cgroup in (("kube", file.kube_reserved_cgroup), ("system", file.system_reserved_cgroup)):
        mine = options & {f"{role}-reserved", f"{role}-reserved-compressible"}
        if len(mine) > 1:
            raise ConfigError(
                f'invalid configuration: both "{role}-reserved" and "{role}-reserved-compressible" cannot be specified '
                f"together in {what}"
            )
        if mine and not cgroup:
            raise ConfigError(
                f"invalid configuration: {role}ReservedCgroup (--{role}-reserved-cgroup) must be specified when "
                f'"{min(mine)}" contained in {what}'
            )
    if options and not file.cgroups_per_qos:
        raise ConfigError(
            f"invalid configuration: {what} is not supported unless cgroupsPerQOS (--cgroups-per-qos) is set to true"
        )
    return Enforcement(options, file.kube_reserved_cgroup, file.system_reserved_cgroup)


def pods_limits(
    enforcement: Enforcement, kube: Reserved, system: Reserved, *, cpus: int, memory: int, pids: int
) -> Limits:
    """Return the limits of all pods together; `memory` in bytes, `pids` the most processes that the kernel allows."""
    cpu = cpus * 1000
    if PODS in enforcement.options:
        for reserved in (kube, system):
            cpu -= milli(reserved.get("cpu", "0"))
            memory -= value(reserved.get("memory", "0"))
            pids -= value(reserved.get("pid", "0"))
    return Limits(cpu_shares=qos.cpu_shares(max(cpu, 0)), memory=max(memory, 0), pids=max(pids, 0))


async def enforce(enforcement: Enforcement, cgroups: Cgroups, kube: Reserved, system: Reserved) -> None:
    """Bound the reserved programs' cgroups. Raise ConfigError if one is not there."""
    for role, name, reserved in (
        ("Kube", enforcement.kube_cgroup, kube),
        ("System", enforcement.system_cgroup, system),
    ):
        option = f"{role.lower()}-reserved"
        if not enforcement.options & {option, f"{option}-compressible"}:
            continue
        limits = Limits(cpu_shares=qos.cpu_shares(milli(reserved["cpu"])) if "cpu" in reserved else 0)
        if option in enforcement.options:
            limits = Limits(
                cpu_shares=limits.cpu_shares,
                memory=value(reserved.get("memory", "0")),
                pids=int(parse(reserved.get("pid", "0"))),
            )
        try:
            await cgroups.limit_existing(name, limits)
        except OSError as error:
            raise ConfigError(
                f'Failed to enforce {role} Reserved Cgroup Limits on "{name}": cgroup does not exist ({error})'
            ) from error
