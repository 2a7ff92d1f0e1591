"""Faults of a run, their moments and their lengths, chosen by the seed.

Each fault has a number and random numbers of its own, so that a run without some of them has the others unchanged.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Callable, Collection, Coroutine
from typing import Any

from simulation.trace import Trace
from simulation.world import World

KINDS = ("loss", "delay", "kill", "pause", "power", "partition", "lag")


class Faults:
    """Injects faults of some kinds, about one each `pause` seconds of all kinds, until it is stopped."""

    def __init__(
        self,
        world: World,
        rng: random.Random,
        trace: Trace,
        pause: float,
        kinds: Collection[str] = KINDS,
        dropped: Collection[int] = (),
    ) -> None:
        self._world, self._rng, self._trace, self._pause = world, rng, trace, pause
        self._kinds, self._dropped = kinds, dropped
        self.injected: Counter[str] = Counter()
        self.numbers: list[int] = []
        """Numbers of the faults that were injected."""
        self.until = float("inf")

    async def run(self) -> None:
        """Inject faults until the time is over; then all are undone."""
        known: dict[str, Callable[[random.Random], Coroutine[Any, Any, None]]] = {
            "loss": self._loss,
            "delay": self._delay,
            "kill": self._kill,
            "pause": self._pause_process,
            "power": self._power,
            "partition": self._partition,
            "lag": self._lag,
        }
        now = self._world.clock.monotonic
        async with asyncio.TaskGroup() as group:
            for number in itertools.count():
                await asyncio.sleep(self._rng.expovariate(1 / self._pause))
                if now() >= self.until:
                    break
                kind, rng = self._rng.choice(KINDS), random.Random(self._rng.random())
                if kind in self._kinds and number not in self._dropped:
                    self.injected[kind] += 1
                    self.numbers.append(number)
                    group.create_task(known[kind](rng))

    def _length(self, rng: random.Random) -> float:
        """Return how long a fault lasts; it ends with the time of faults."""
        wanted = rng.choice((2.0, 20.0, 60.0, 400.0)) * rng.uniform(0.5, 1.5)
        return max(1.0, min(wanted, self.until - self._world.clock.monotonic()))

    async def _loss(self, rng: random.Random) -> None:
        network, seconds = self._world.network, self._length(rng)
        self._add(f"messages are lost for {seconds:.1f} s")
        network.lost, network.cut = rng.uniform(0.01, 0.3), rng.uniform(0.0, 0.05)
        await asyncio.sleep(seconds)
        network.lost = network.cut = 0.0

    async def _delay(self, rng: random.Random) -> None:
        network, seconds = self._world.network, self._length(rng)
        self._add(f"messages are slow for {seconds:.1f} s")
        network.slow = rng.uniform(0.01, 0.2)
        await asyncio.sleep(seconds)
        network.slow = 0.0

    async def _kill(self, rng: random.Random) -> None:
        member = rng.choice(self._world.members)
        if member.process.alive:
            self._add(f"{member.name} is killed")
            member.kill()

    async def _pause_process(self, rng: random.Random) -> None:
        members = [member.process for member in self._world.members if member.process.alive]
        process = rng.choice((members if rng.random() < 0.8 else self._world.observers) or [None])
        if process is not None:
            seconds = self._length(rng)
            self._add(f"{process.name} is paused for {seconds:.1f} s")
            process.pause(seconds)

    async def _power(self, rng: random.Random) -> None:
        node = rng.choice(self._world.nodes)
        if node.running:
            seconds = self._length(rng)
            self._add(f"{node.name} has no power for {seconds:.1f} s")
            node.fail()
            await asyncio.sleep(seconds)
            node.power_on()

    async def _partition(self, rng: random.Random) -> None:
        groups = (self._world.nodes, self._world.members, self._world.observers)
        name = rng.choice([each.name for group in groups for each in group])
        if name not in self._world.network.partitioned:
            seconds = self._length(rng)
            self._add(f"{name} is cut off for {seconds:.1f} s")
            self._world.network.partitioned.add(name)
            await asyncio.sleep(seconds)
            self._world.network.partitioned.discard(name)

    async def _lag(self, rng: random.Random) -> None:
        name = rng.choice(self._world.members).name
        if name not in self._world.network.late:
            seconds = self._length(rng)
            self._add(f"the cache of {name} is behind for {seconds:.1f} s")
            self._world.network.late.add(name)
            await asyncio.sleep(seconds)
            self._world.network.late.discard(name)

    def _add(self, text: str) -> None:
        self._trace.add("fault", text)
