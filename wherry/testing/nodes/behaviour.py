"""The behaviour of the next start of a container: the next step of its script, or what a container does without one."""

from __future__ import annotations

from agent.lifecycle import Start, is_sidecar, policy_of
from agent.lifecycle.actions import Kind
from kube.api import core_v1
from wherry.testing.nodes import scripts
from wherry.testing.nodes.container import AnyContainer
from wherry.testing.nodes.scripts import Exit, Outcome, Pull, PullError, Run, Scripts


class Behaviour:
    """The behaviour of one pod's containers."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts
        self._position: dict[str, int] = {}
        """By container name: the steps of its script that were done."""
        self._kept: dict[str, Outcome] = {}
        """By container name: what it does when it can start."""

    def next(self, pod: core_v1.Pod, container: AnyContainer, kind: Kind, start: Start) -> Outcome:
        """Return what a container does now that it is started."""
        if start.name in self._kept:
            return self._kept.pop(start.name)
        metadata = pod.metadata
        script = self._scripts.find(metadata.namespace or "", metadata.name or "", start.name)
        if script is None:
            return _default(pod, container, kind)
        position = self._position.get(start.name, 0)
        self._position[start.name] = position + 1
        step = script.steps[min(position, len(script.steps) - 1)]
        if isinstance(step, Run | Exit | Pull | PullError):
            return step
        return step(
            scripts.Start(
                metadata.namespace or "",
                metadata.name or "",
                start.name,
                container.image or "",
                start.restart_count,
                tuple([*container.command, *container.args]),
                dict(metadata.labels),
            )
        )

    def positions(self) -> dict[str, int]:
        """Return the number of steps that were done, by container name, for `restore`."""
        return {name: number - (name in self._kept) for name, number in self._position.items()}

    def restore(self, positions: dict[str, int]) -> None:
        """Continue scripts at these positions."""
        self._position, self._kept = positions, {}

    def keep(self, name: str, outcome: Outcome) -> None:
        """Return this behaviour at the next start: the container could not start."""
        self._kept[name] = outcome


def _default(pod: core_v1.Pod, container: AnyContainer, kind: Kind) -> Run | Exit:
    """Return the behaviour without a script: what is to run for ever runs, and what is to complete completes."""
    if kind is Kind.EPHEMERAL:
        return Run()
    assert isinstance(container, core_v1.Container)
    if kind is Kind.INIT:
        return Run() if is_sidecar(container) else Exit(0)
    return Run() if policy_of(pod, container) == "Always" else Exit(0)
