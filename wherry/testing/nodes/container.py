"""A simulated container: one instance that a script makes run, become ready, write logs and end."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from agent.interfaces import ProbeOutcome
from agent.lifecycle import Kind
from agent.runtime_records import ContainerRecord, State
from kube.api import core_v1
from wherry.testing.nodes.log import ContainerLog
from wherry.testing.nodes.scripts import Exit, Run

AnyContainer: TypeAlias = core_v1.Container | core_v1.EphemeralContainer
KILLED = 137
"""Exit code of a container that is killed."""


class SimulatedContainer(msgspec.Struct):
    """One instance of a container. Times are seconds since the epoch."""

    spec: AnyContainer
    kind: Kind
    outcome: Run | Exit
    record: ContainerRecord
    stops_at: float | None = None
    """Time at which it ends because it was stopped."""
    stop_code: int = 0
    log: ContainerLog = msgspec.field(default_factory=ContainerLog)

    def ends_at(self) -> float | None:
        """Return the time at which it ends as things stand, None if it runs on."""
        own, run = None, self.outcome
        if isinstance(run, Exit):
            own = self.record.started_at + run.after
        elif run.seconds is not None:
            own = self.record.started_at + run.seconds
        return min((at for at in (own, self.stops_at) if at is not None), default=None)

    def stop(self, now: float, grace: float) -> None:
        """Send SIGTERM, and SIGKILL after the grace period; a shorter one than before holds."""
        needed, code = 0.0, 0
        if isinstance(self.outcome, Run):
            needed, code = self.outcome.stop_seconds, self.outcome.stop_code
        if needed > grace:
            needed, code = grace, KILLED
        if self.stops_at is None or now + needed < self.stops_at:
            self.stops_at, self.stop_code = now + needed, code

    def outcome_of_probes(self, now: float) -> ProbeOutcome:
        """Return the outcome of its probes."""
        run, container = self.outcome, self.spec
        if not isinstance(run, Run):
            return ProbeOutcome(ready=container.readiness_probe is None)
        started = self.record.started_at  # sums, as in changes_at: a difference may be rounded to the other side
        unhealthy_at = None if run.unhealthy_after is None else started + run.unhealthy_after
        failed = unhealthy_at is not None and container.liveness_probe is not None and now >= unhealthy_at
        return ProbeOutcome(ready=run.ready and now >= started + run.ready_after, failed="Liveness" if failed else "")

    def changes_at(self, now: float) -> float | None:
        """Return the time of its next change by itself."""
        times = [self.ends_at()]
        if isinstance(self.outcome, Run):
            started = self.record.started_at
            times.append(started + self.outcome.ready_after if self.outcome.ready else None)
            times.append(started + self.outcome.unhealthy_after if self.outcome.unhealthy_after is not None else None)
        return min((at for at in times if at is not None and at > now), default=None)

    def exit(self) -> tuple[float, int, str, str]:
        """Return when it ended, with which exit code, reason and message."""
        ends = self.ends_at()
        assert ends is not None
        if self.stops_at is not None and ends == self.stops_at:
            return ends, self.stop_code, "", ""
        if isinstance(self.outcome, Exit):
            return ends, self.outcome.code, self.outcome.reason, self.outcome.message
        return ends, self.outcome.exit_code, "", ""


def new_record(container: AnyContainer, **known: object) -> ContainerRecord:
    """Return the record of a new instance that runs."""
    image = container.image or ""
    return ContainerRecord(
        name=container.name,
        state=State.RUNNING,
        image=image,
        image_ref=f"{image}@simulated",
        **known,  # type: ignore[arg-type]
    )
