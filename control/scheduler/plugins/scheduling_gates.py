"""SchedulingGates: a pod with gates is not tried before all of them are gone."""

from __future__ import annotations

from kube.api import core_v1


class SchedulingGates:
    name = "SchedulingGates"
    weight = 0

    def pre_enqueue(self, pod: core_v1.Pod) -> str:
        """Name the gates that are left."""
        gates = [gate.name for gate in pod.spec.scheduling_gates]
        return f"waiting for scheduling gates: {gates}" if gates else ""
