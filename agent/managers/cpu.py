"""The CPU manager: with the static policy, containers of guaranteed pods have whole processors for themselves.

Exclusive processors are taken out of the shared pool; `changed` is called then, and the containers in the pool are moved
(pkg/kubelet/cm/cpumanager/policy_static.go). Reserved processors are never exclusive but stay in the pool, unless
strict-cpu-reservation keeps pods off them altogether. The processors of an init container can be reused by the main containers
of its pod.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from agent.cgroups import qos
from agent.lifecycle import is_sidecar
from agent.managers import cpu_assignment, cpu_state, cpuset
from agent.managers.checkpoint_writer import CheckpointWriter
from agent.managers.cpu_state import CpuState
from agent.managers.cpuset import CPUSet
from agent.managers.errors import SMTAlignmentError
from agent.managers.hardware import Hardware
from agent.managers.hints import Hint, Hints, masks
from agent.managers.state_files import StateError
from kube.api import core_v1
from kube.quantity import milli

FULL_CORES, SPREAD, STRICT = "full-pcpus-only", "distribute-cpus-across-numa", "strict-cpu-reservation"
BY_CACHE = "prefer-align-cpus-by-uncorecache"


class CpuManager:
    """Static policy over one machine; with policy none nothing is ever assigned."""

    def __init__(
        self,
        machine: Hardware,
        root: Path,
        policy: str,
        options: Mapping[str, bool],
        *,
        reserved_count: int = 0,
        reserved: CPUSet = frozenset(),
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """Take over what the last agent wrote below `root`. Raise StateError, AdmissionError."""
        self._machine, self._root, self.policy, self._options = machine, root, policy, options
        self._changed = changed
        self._reusable: dict[str, CPUSet] = {}
        self.reserved: CPUSet = frozenset()
        if policy == "static":
            self.reserved = reserved or cpu_assignment.packed(machine, machine.all, reserved_count)
        self._state = cpu_state.load(root, policy) or CpuState(policy)
        if policy == "static":
            self._check()
        self.checkpoint = CheckpointWriter(cpu_state.FILE, self._prepared)
        self.checkpoint.save_at_start()

    def _prepared(self) -> Callable[[], None]:
        return partial(cpu_state.save, self._root, self._state.copy())

    def _check(self) -> None:
        """Hold the state against the machine: a machine or reservation that changed makes it worthless."""
        state, strict = self._state, self._options.get(STRICT, False)
        usable = self._machine.all - self.reserved if strict else self._machine.all
        if not state.shared and not state.assigned:
            state.shared = usable
            return
        hint = f"please drain this node and remove the CPU manager state file {self._root / cpu_state.FILE}"
        if strict and self.reserved & state.shared:
            raise StateError(f"some of strictly reserved cpus: {cpuset.render(self.reserved)} are present in the "
                             f"defaultCpuSet: {cpuset.render(state.shared)}; {hint}")  # fmt: skip
        if not strict and not self.reserved <= state.shared:
            raise StateError(f"not all reserved cpus: {cpuset.render(self.reserved)} are present in the "
                             f"defaultCpuSet: {cpuset.render(state.shared)}; {hint}")  # fmt: skip
        if state.shared & state.all_assigned():
            raise StateError(f"processors are both assigned and shared; {hint}")
        if (state.shared | state.all_assigned()) != usable:
            raise StateError(
                f"current set of available CPUs {cpuset.render(usable)} doesn't match with CPUs in state "
                f"{cpuset.render(state.shared | state.all_assigned())}; {hint}"
            )

    # -- requests ------------------------------------------------------------------------------------------------
    def wanted(self, pod: core_v1.Pod, container: core_v1.Container) -> int:
        """Return how many processors the container gets for itself; 0 for most."""
        if self.policy != "static" or qos.qos_class(pod) != qos.GUARANTEED:
            return 0
        if pod.spec.resources is not None and (pod.spec.resources.limits or pod.spec.resources.requests):
            return 0  # exclusive processors cannot be distinguished from the pod's own budget
        amount = milli(qos.requests(container.resources).get("cpu", 0))
        return amount // 1000 if amount % 1000 == 0 else 0

    def affinity(self, uid: str, container: str) -> CPUSet:
        """Return the processors on which a container may run; empty where they are not set."""
        if self.policy != "static":
            return frozenset()
        exclusive = self._state.of(uid, container)
        return self._state.shared if exclusive is None else exclusive

    def exclusive(self, uid: str, container: str) -> CPUSet:
        """Return the processors that a container has for itself."""
        return self._state.of(uid, container) or frozenset()

    @property
    def allocatable(self) -> CPUSet:
        """The processors that can be given away."""
        return self._machine.all - self.reserved

    def _available(self) -> CPUSet:
        return self._state.shared - self.reserved

    # -- hints --------------------------------------------------------------------------------------------------------
    def pod_hints(self, pod: core_v1.Pod) -> Hints:
        """Return hints for the whole pod's processors."""
        need = _pod_need(pod, lambda c: self.wanted(pod, c))
        if need == 0:
            return {}
        own = self._state.assigned.get(pod.metadata.uid or "")
        if own:
            return {"cpu": self._hints(frozenset().union(*own.values()), frozenset(), need)}
        return {"cpu": self._hints(self._available(), self._reusable.get(pod.metadata.uid or "", frozenset()), need)}

    def container_hints(self, pod: core_v1.Pod, container: core_v1.Container) -> Hints:
        """Return hints for a container's processors."""
        need, uid = self.wanted(pod, container), pod.metadata.uid or ""
        if need == 0:
            return {}
        own = self._state.of(uid, container.name)
        if own is not None:
            # It keeps what it has.
            return {"cpu": self._hints(own, frozenset(), need) if len(own) == need else []}
        return {"cpu": self._hints(self._available(), self._reusable.get(uid, frozenset()), need)}

    def _hints(self, available: CPUSet, reusable: CPUSet, need: int) -> list[Hint]:
        found, least = [], len(self._machine.nodes)
        for mask in masks(self._machine.node_ids):
            inside = self._machine.in_nodes(mask)
            if len(inside) >= need:
                least = min(least, mask.bit_count())
            if reusable <= inside and len((available | reusable) & inside) >= need:
                found.append(mask)
        return [Hint(mask, mask.bit_count() == least) for mask in found]

    # -- giving and taking back ---------------------------------------------------------------------------------------
    async def allocate(self, pod: core_v1.Pod, container: core_v1.Container, hint: Hint, *, reused: bool) -> None:
        """Give a container its processors, from the hint's nodes as far as they reach. Raise AdmissionError."""
        need, uid = self.wanted(pod, container), pod.metadata.uid or ""
        if need == 0:
            return
        taken = self._state.of(uid, container.name)
        if taken is None:
            reusable = self._reusable.get(uid, frozenset())
            if self._options.get(FULL_CORES):
                self._check_cores(need, reusable)
            # What an init container had is used before more is taken from the others.
            taken = self._take(reusable, min(len(reusable), need))
            taken |= self._pick(self._available(), need - len(taken), hint)
            self._state.assign(uid, container.name, taken)
            self._state.shared -= taken
            self._changed()
            self.checkpoint.mark()
        if reused:
            self._reusable[uid] = self._reusable.get(uid, frozenset()) | taken
        elif uid in self._reusable:
            self._reusable[uid] -= taken

    async def save(self) -> None:
        """Write what was given; without it the next agent gives the processors anew."""
        await self.checkpoint.try_save_marked()

    def _check_cores(self, need: int, reusable: CPUSet) -> None:
        threads = self._machine.threads_per_core
        if need % threads:
            raise SMTAlignmentError(f"requested {need} cpus not multiple cpus per core = {threads}")
        free = self._available() | reusable
        whole = sum(len(core) for core in self._machine.cores.values() if core <= free)
        if whole < need:
            raise SMTAlignmentError(
                f"not enough free physical CPUs: available physical CPUs = {whole}, requested CPUs = {need}, "
                f"CPUs per core = {threads}"
            )

    def _pick(self, free: CPUSet, need: int, hint: Hint) -> CPUSet:
        taken: CPUSet = frozenset()
        if hint.affinity is not None and need:
            aligned = free & self._machine.in_nodes(hint.affinity)
            taken = self._take(aligned, min(len(aligned), need))
        return taken | self._take(free - taken, need - len(taken))

    def _take(self, free: CPUSet, count: int) -> CPUSet:
        if self._options.get(SPREAD):
            group = self._machine.threads_per_core if self._options.get(FULL_CORES) else 1
            return cpu_assignment.distributed(self._machine, free, count, group) if count else frozenset()
        return cpu_assignment.packed(self._machine, free, count, by_cache=self._options.get(BY_CACHE, False))

    async def release(self, uid: str) -> None:
        """Put a pod's processors back into the pool."""
        self._reusable.pop(uid, None)
        given = self._state.assigned.pop(uid, None)
        if given:
            self._state.shared |= frozenset().union(*given.values()) - self._strictly_reserved()
            self._changed()
            self.checkpoint.mark()
            await self.checkpoint.try_save_marked()

    def _strictly_reserved(self) -> CPUSet:
        return self.reserved if self._options.get(STRICT) else frozenset()

    @property
    def owners(self) -> set[str]:
        """The UIDs of the pods that have something."""
        return set(self._state.assigned)


def _pod_need(pod: core_v1.Pod, wanted: Callable[[core_v1.Container], int]) -> int:
    """Sum as the scheduler does: sidecars and main containers together, or the largest step before them."""
    mains: Sequence[core_v1.Container] = pod.spec.containers
    sidecars = peak = 0
    for container in pod.spec.init_containers:
        if is_sidecar(container):
            sidecars += wanted(container)
            peak = max(peak, sidecars)
        else:
            peak = max(peak, sidecars + wanted(container))
    return max(peak, sidecars + sum(wanted(c) for c in mains))
