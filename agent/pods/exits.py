"""Records in the journal how containers of a pod ended. The status keeps the last two ends of each."""

from __future__ import annotations

from agent.runtime_records import ContainerRecord, PodRuntime
from kube import duration
from kube.api import core_v1
from kube.decisions import Decisions


class Exits:
    """Containers whose ends are recorded; `runtime` are those of an earlier agent, which are not."""

    def __init__(self, decisions: Decisions, runtime: PodRuntime) -> None:
        self._decisions = decisions
        self._recorded = _exited(runtime)

    def record(self, pod: core_v1.Pod, runtime: PodRuntime) -> None:
        """Record the containers that have ended since the last call."""
        exited = _exited(runtime)
        if exited <= self._recorded:
            return
        for container in runtime.containers:
            if container.exited and container.id not in self._recorded:
                self._decisions.record(pod, _text(container), details={"container": container.id})
        self._recorded = exited  # of those that are removed nothing is kept


def _exited(runtime: PodRuntime) -> set[str]:
    return {container.id for container in runtime.containers if container.exited}


def _text(record: ContainerRecord) -> str:
    after = record.finished_at - record.started_at
    ran = f" after {duration.render(after)}" if record.started_at and after >= 0 else ""
    message = f": {record.message.strip()}" if record.message else ""
    return f"container {record.name} ended{ran} with exit code {record.exit_code} ({record.reason}){message}"
