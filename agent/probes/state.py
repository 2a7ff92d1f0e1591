"""Judges a container's probe results: a state machine without time or I/O (upstream: pkg/kubelet/prober/worker.go).

A result takes effect after as many consecutive repetitions as its threshold. Liveness and readiness wait for the startup probe.
A failed liveness or startup probe stops: the container will be killed, and its successor has a new state.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from agent.interfaces import ProbeOutcome
from agent.probes.result import Verdict
from kube.api import core_v1


class Kind(Enum):
    """The three probes, by the names that events show."""

    STARTUP = "Startup"
    LIVENESS = "Liveness"
    READINESS = "Readiness"


@dataclass(slots=True)
class _Count:
    probe: core_v1.Probe
    last: bool | None = None
    in_a_row: int = 0

    def settled(self, *, good: bool) -> bool:
        """Count a result; return whether there have been enough of its kind in a row."""
        self.in_a_row = self.in_a_row + 1 if self.last == good else 1
        self.last = good
        wanted = (self.probe.success_threshold or 1) if good else (self.probe.failure_threshold or 3)
        return self.in_a_row >= wanted


@dataclass(slots=True)
class ContainerProbes:
    """One container instance's probes and where they stand."""

    counts: dict[Kind, _Count]
    started: bool
    ready: bool
    failed: Kind | None = None
    ending: bool = False
    """The pod's containers are being stopped: only readiness is of interest."""
    _resting: set[Kind] = field(default_factory=set)

    @classmethod
    def of(cls, container: core_v1.Container, *, was_started: bool = False, was_ready: bool = False) -> ContainerProbes:
        """Begin with a container instance; `was_*`: what was known before the agent itself was restarted."""
        probes = {
            Kind.STARTUP: container.startup_probe,
            Kind.LIVENESS: container.liveness_probe,
            Kind.READINESS: container.readiness_probe,
        }
        counts = {kind: _Count(probe) for kind, probe in probes.items() if probe is not None}
        return cls(
            counts,
            started=was_started or Kind.STARTUP not in counts,
            ready=was_ready or Kind.READINESS not in counts,
        )

    def probe(self, kind: Kind) -> core_v1.Probe:
        return self.counts[kind].probe

    def wanted(self) -> set[Kind]:
        """Return the probes that are to be made now."""
        kinds = set(self.counts) - self._resting
        if self.ending:
            kinds &= {Kind.READINESS}
        return kinds - {Kind.STARTUP} if self.started else kinds & {Kind.STARTUP}

    def record(self, kind: Kind, verdict: Verdict) -> bool:
        """Record a result; return whether the outcome changed."""
        if verdict is Verdict.ERRORED or kind not in self.wanted():
            return False
        before = self.outcome()
        good = verdict is not Verdict.FAILURE
        if self.counts[kind].settled(good=good):
            if kind is Kind.READINESS:
                self.ready = good
            elif not good:
                self.failed = kind
                self._resting.add(kind)
            elif kind is Kind.STARTUP:
                self.started = True
        return self.outcome() != before

    def outcome(self) -> ProbeOutcome:
        """Return the outcome of the probes."""
        failed = None if self.ending else self.failed
        grace = self.probe(failed).termination_grace_period_seconds if failed else None
        return ProbeOutcome(
            started=self.started,
            ready=self.started and self.ready,
            failed=failed.value if failed else "",
            grace=grace,
        )
