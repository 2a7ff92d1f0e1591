"""The moments at which a simulated container changes by itself."""

from __future__ import annotations

import random

from agent.lifecycle import Kind
from kube.api import core_v1
from wherry.testing.nodes.container import SimulatedContainer, new_record
from wherry.testing.nodes.scripts import Run


def test_a_container_is_ready_at_the_moment_of_its_change() -> None:
    """Times since the epoch have 22 bits for fractions of a second: sums and differences of them are rounded."""
    rng, spec = random.Random(5), core_v1.Container(name="app")
    for _ in range(2000):
        started, run = 1_767_226_662 + rng.random(), Run(ready_after=rng.uniform(0, 10))
        container = SimulatedContainer(spec, Kind.MAIN, run, new_record(spec, id="c", started_at=started))
        change = container.changes_at(started)
        assert change is not None and container.changes_at(change) is None
        assert container.outcome_of_probes(change).ready, (started, run.ready_after)
