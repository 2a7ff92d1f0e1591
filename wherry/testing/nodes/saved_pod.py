"""A simulated pod in a file: its containers, their logs, the positions in scripts and the back-offs."""

from __future__ import annotations

import msgspec

from agent.lifecycle import End
from agent.lifecycle.actions import Kind
from agent.runtime_records import ContainerRecord, PodRuntime, SandboxRecord
from kube import serialize
from kube.api import core_v1
from wherry.testing.nodes.container import AnyContainer, SimulatedContainer
from wherry.testing.nodes.pod import SimulatedPod
from wherry.testing.nodes.pulls import PullFailure
from wherry.testing.nodes.saved_steps import SavedStep, saved_step
from wherry.testing.nodes.scripts import Exit, Run

BackOffs = dict[str, tuple[float, float]]
"""By key: the delay, and the seconds since the last failure."""


class SavedContainer(msgspec.Struct, omit_defaults=True):
    """One instance of a container."""

    spec: msgspec.Raw
    kind: Kind
    outcome: SavedStep
    record: ContainerRecord
    log: list[bytes]
    stops_at: float | None = None
    stop_code: int = 0


class SavedPod(msgspec.Struct, omit_defaults=True):
    """One pod. Times are seconds since the epoch."""

    key: str
    uid: str
    sandboxes: list[SandboxRecord] = []
    containers: list[SavedContainer] = []
    created: int = 0
    positions: dict[str, int] = {}
    ready: dict[str, bool] = {}
    mounted: bool = False
    crash_loops: BackOffs = {}
    pull_back_offs: BackOffs = {}
    failed_pulls: dict[str, PullFailure] = {}
    pulls_end: dict[str, float] = {}
    end: End | None = None
    stopping_since: float | None = None


def saved(key: str, pod: SimulatedPod) -> SavedPod:
    """Return a pod for a file."""
    instances, pulls = pod.instances, pod.pulls
    return SavedPod(
        key,
        pod.uid,
        list(instances.runtime.sandboxes),
        [_saved(each) for each in instances.containers.values()],
        instances.created,
        pod.behaviour.positions(),
        dict(pod.ready),
        pod.mounts.done,
        pod.crash_loops.saved(),
        pulls.back_off.saved(pod.now()),
        dict(pulls.failed),
        dict(pulls.retry_at),
        pod.end,
        pod.stopping_since,
    )


def restore(pod: SimulatedPod, state: SavedPod) -> None:
    """Give a pod the state of a file."""
    instances, pulls = pod.instances, pod.pulls
    records = [each.record for each in state.containers]
    instances.runtime = PodRuntime.of(state.sandboxes, records)
    instances.containers = {each.record.id: _restored(each) for each in state.containers}
    instances.created = state.created
    pod.behaviour.restore(state.positions)
    pod.ready, pod.mounts.done = state.ready, state.mounted
    pod.crash_loops.restore(state.crash_loops)
    pulls.back_off.restore(state.pull_back_offs, pod.now())
    pulls.failed, pulls.retry_at = state.failed_pulls, state.pulls_end
    pod.end, pod.stopping_since = state.end, state.stopping_since


def _saved(each: SimulatedContainer) -> SavedContainer:
    spec = msgspec.Raw(serialize.encode(each.spec))
    lines, step = each.log.lines(), saved_step(each.outcome)
    return SavedContainer(spec, each.kind, step, each.record, lines, each.stops_at, each.stop_code)


def _restored(state: SavedContainer) -> SimulatedContainer:
    spec: AnyContainer
    if state.kind is Kind.EPHEMERAL:
        spec = serialize.decode(bytes(state.spec), core_v1.EphemeralContainer)
    else:
        spec = serialize.decode(bytes(state.spec), core_v1.Container)
    outcome = state.outcome.step()
    assert isinstance(outcome, Run | Exit)
    each = SimulatedContainer(spec, state.kind, outcome, state.record, state.stops_at, state.stop_code)
    each.log.restore(state.log, closed=not state.record.running)
    return each
