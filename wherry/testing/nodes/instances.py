"""The sandbox and the containers of one simulated pod, as the runtime of a node has them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from agent.lifecycle import Start, container_hash
from agent.lifecycle.actions import Kind
from agent.runtime_records import PodRuntime, SandboxRecord, State
from kube.clock import Clock
from wherry.testing.nodes.container import KILLED, AnyContainer, SimulatedContainer, new_record
from wherry.testing.nodes.log import StreamName
from wherry.testing.nodes.scripts import Exit, Run


class Instances:
    """Instances of the containers of the pod with this UID. Times are seconds since the epoch."""

    def __init__(self, uid: str, clock: Clock) -> None:
        self._uid, self._clock = uid, clock
        self.runtime = PodRuntime()
        self.containers: dict[str, SimulatedContainer] = {}
        """By container ID, also those that have ended as long as the kubelet would keep them."""
        self.created = 0

    def running(self) -> list[SimulatedContainer]:
        """Return the instances that run."""
        return [each for each in self.containers.values() if each.record.running]

    # -- sandboxes ------------------------------------------------------------------------------------------------
    def add_sandbox(self, attempt: int, ips: tuple[str, ...], now: float, *, host_network: bool) -> None:
        """Create a sandbox."""
        sandbox = SandboxRecord(
            id=f"{self._uid}-{attempt}",
            ready=True,
            attempt=attempt,
            created_at=now,
            ips=ips,
            host_network=host_network,
        )
        self.runtime = self.runtime.with_sandbox(sandbox)

    def lose_power(self) -> None:
        """End all containers and the sandbox without a trace, as a node does that loses power."""
        now = self._clock.now().timestamp()
        for record in self.runtime.alive:
            gone = replace(record, state=State.EXITED, exit_code=KILLED, reason="Error", finished_at=now)
            self.runtime = self.runtime.with_container(gone)
            self.containers[record.id].log.close()
        for sandbox in self.runtime.sandboxes:
            self.runtime = self.runtime.with_sandbox(replace(sandbox, ready=False))

    # -- containers -----------------------------------------------------------------------------------------------
    def add(self, container: AnyContainer, kind: Kind, start: Start, outcome: Run | Exit, now: float) -> None:
        """Start an instance in the sandbox."""
        assert self.runtime.sandbox is not None
        self.created += 1
        record = new_record(
            container,
            id=f"{self._uid}-{self.created}",
            restart_count=start.restart_count,
            sandbox_id=self.runtime.sandbox.id,
            hash=container_hash(container),
            created_at=now,
            started_at=now,
        )
        self.runtime = self.runtime.with_container(record)
        each = self.containers[record.id] = SimulatedContainer(container, kind, outcome, record)
        each.log.write(outcome.logs, self._clock.now())

    def end_due(self, now: float) -> None:
        """End the instances whose time has come."""
        for each in self.running():
            ends = each.ends_at()
            if ends is not None and ends <= now:
                self.finish(each.record.id, *each.exit())

    def finish(self, container_id: str, at: float, code: int = KILLED, reason: str = "", message: str = "") -> None:
        """End an instance, if it runs."""
        record = self.runtime.find(container_id)
        if record is None or not record.running:
            return
        reason = reason or ("" if code else "Completed")
        ended = replace(record, state=State.EXITED, finished_at=at, exit_code=code, reason=reason, message=message)
        self.runtime = self.runtime.with_container(ended)
        self.containers[container_id].record = ended
        self.containers[container_id].log.close()

    def kill(self, container: str, code: int = KILLED, reason: str = "") -> bool:
        """End a running container with an exit code, as by a signal or for want of memory; False if it does not run."""
        record = self.runtime.latest(container)
        if record is None or not record.running:
            return False
        self.finish(record.id, self._clock.now().timestamp(), code, reason)
        return True

    def kill_all(self, now: float, *, but: Collection[str] = ()) -> None:
        """Kill all containers but those with these names."""
        for record in self.runtime.alive:
            if record.name not in but:
                self.finish(record.id, now)

    def remove(self, container_id: str) -> None:
        """Remove an instance."""
        self.runtime = self.runtime.without_container(container_id)
        self.containers.pop(container_id, None)

    def remove_all(self, *, but: Collection[str]) -> None:
        """Remove the instances of all containers but those with these names."""
        for record in self.runtime.containers:
            if record.name not in but:
                self.remove(record.id)

    # -- logs -----------------------------------------------------------------------------------------------------
    def logs(self, container: str, *, previous: bool = False) -> str | None:
        """Return the text of a container's current or previous instance, None if there is none."""
        record = self.runtime.previous(container) if previous else self.runtime.latest(container)
        return self.containers[record.id].log.text() if record is not None and record.id in self.containers else None

    def write_log(self, container: str, text: str, stream: StreamName = "stdout") -> bool:
        """Add lines to the log of a running container; False if it does not run."""
        record = self.runtime.latest(container)
        if record is None or not record.running:
            return False
        self.containers[record.id].log.write(text, self._clock.now(), stream)
        return True
