"""cpu_manager_state: the exclusive processors of each container, and the shared pool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from agent.managers import cpuset, state_files
from agent.managers.cpuset import CPUSet
from agent.managers.state_files import StateError

FILE = "cpu_manager_state"


@dataclass(slots=True)
class CpuState:
    """By pod UID and container; `shared` is the pool of the containers without processors of their own."""

    policy: str
    shared: CPUSet = frozenset()
    assigned: dict[str, dict[str, CPUSet]] = field(default_factory=dict)

    def of(self, uid: str, container: str) -> CPUSet | None:
        """Return what a container has for itself."""
        return self.assigned.get(uid, {}).get(container)

    def assign(self, uid: str, container: str, cpus: CPUSet) -> None:
        self.assigned.setdefault(uid, {})[container] = cpus

    def copy(self) -> CpuState:
        """Return the state as it is now."""
        return CpuState(self.policy, self.shared, {uid: dict(pod) for uid, pod in self.assigned.items()})

    def all_assigned(self) -> CPUSet:
        return frozenset().union(*(cpus for pod in self.assigned.values() for cpus in pod.values()))


def save(root: Path, state: CpuState) -> None:
    """Write the state. Raise OSError."""
    entries = {
        uid: {name: cpuset.render(cpus) for name, cpus in pod.items()} for uid, pod in state.assigned.items() if pod
    }
    shared = cpuset.render(state.shared)
    content: dict[str, object] = {"policyName": state.policy, "defaultCpuSet": shared}
    if entries:
        content["entries"] = entries
    content["checksum"] = _checksum(state.policy, shared, entries)
    state_files.write(root / FILE, content)


def load(root: Path, policy: str) -> CpuState | None:
    """Read the state that the last agent left; None if there is none. Raise StateError."""
    with state_files.restoring(root / FILE, "CPU manager"):
        found = state_files.read(root / FILE)
        return _restored(msgspec.convert(found, _File), policy) if found is not None else None


class _File(msgspec.Struct, rename="camel"):
    policy_name: str = ""
    default_cpu_set: str = ""
    entries: dict[str, dict[str, str] | None] | None = msgspec.field(default_factory=dict)
    checksum: int = 0


def _restored(found: _File, policy: str) -> CpuState:
    if found.checksum:  # the oldest files have none
        state_files.check(found.checksum, _checksum(found.policy_name, found.default_cpu_set, found.entries))
    if found.policy_name != policy:
        raise StateError(f'configured policy "{policy}" differs from state checkpoint policy "{found.policy_name}"')
    assigned = {
        uid: {
            name: _parsed(text, f'cpuset "{text}" for container "{name}" in pod "{uid}"') for name, text in pod.items()
        }
        for uid, pod in (found.entries or {}).items()
        if pod
    }
    shared = found.default_cpu_set
    return CpuState(policy, _parsed(shared, f'default cpu set "{shared}"'), assigned)


def _parsed(text: str, what: str) -> CPUSet:
    try:
        return cpuset.parse(text)
    except ValueError as error:
        raise StateError(f"could not parse {what}: {error}") from error


def _checksum(policy: str, shared: str, entries: Mapping[str, Mapping[str, str] | None] | None) -> int:
    pods = None if entries is None else {uid: state_files.go_map(pod) for uid, pod in entries.items()}
    return state_files.checksum(
        f"(*state.CPUManagerCheckpoint){{PolicyName:(string){policy} DefaultCPUSet:(string){shared} "
        f"Entries:(map[string]map[string]string){state_files.go_map(pods)} Checksum:(checksum.Checksum)0}}"
    )
