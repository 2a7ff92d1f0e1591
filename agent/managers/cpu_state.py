"""cpu_manager_state: which container has which processors for itself, and what is left for all others."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

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

    def give(self, uid: str, container: str, cpus: CPUSet) -> None:
        self.assigned.setdefault(uid, {})[container] = cpus

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
    """Read the state that the last agent left; None where there is none. Raise StateError."""
    found = state_files.read(root / FILE)
    if found is None:
        return None
    entries = found.get("entries") or {}
    shared = found.get("defaultCpuSet", "")
    given = found.get("checksum", 0)
    if given and given != _checksum(found.get("policyName", ""), shared, entries):
        raise StateError(f"{root / FILE}: checkpoint is corrupted")
    if found.get("policyName") != policy:
        raise StateError(
            f'configured policy "{policy}" differs from state checkpoint policy "{found.get("policyName")}"'
        )
    try:
        assigned = {uid: {name: cpuset.parse(text) for name, text in pod.items()} for uid, pod in entries.items()}
        return CpuState(policy, cpuset.parse(shared), assigned)
    except ValueError as error:
        raise StateError(f"{root / FILE}: {error}") from error


def _checksum(policy: str, shared: str, entries: dict[str, dict[str, str]]) -> int:
    pods = state_files.go_map({uid: state_files.go_map(pod) for uid, pod in entries.items()})
    return state_files.checksum(
        f"(*state.CPUManagerCheckpoint){{PolicyName:(string){policy} DefaultCPUSet:(string){shared} "
        f"Entries:(map[string]map[string]string){pods} Checksum:(checksum.Checksum)0}}"
    )
