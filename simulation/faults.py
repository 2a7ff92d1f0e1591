"""Faults of a run, their moments and their lengths, chosen by the seed."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from simulation.trace import Trace
from simulation.world import World

KINDS = ("loss", "delay", "kill", "pause", "power", "partition")


class Faults:
    """Injects faults of some kinds, about one each `pause` seconds, until it is stopped."""

    def __init__(
        self, world: World, rng: random.Random, trace: Trace, pause: float, kinds: tuple[str, ...] = KINDS
    ) -> None:
        self._world, self._rng, self._trace, self._pause, self._kinds = world, rng, trace, pause, kinds
        self.injected: Counter[str] = Counter()
        self.until = float("inf")

    async def run(self) -> None:
        """Inject faults until the time is over; then all are undone."""
        known: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
            "loss": self._loss,
            "delay": self._delay,
            "kill": self._kill,
            "pause": self._pause_process,
            "power": self._power,
            "partition": self._partition,
        }
        now = self._world.clock.monotonic
        async with asyncio.TaskGroup() as group:
            while True:
                await asyncio.sleep(self._rng.expovariate(1 / self._pause))
                if now() >= self.until:
                    break
                kind = self._rng.choice(self._kinds)
                self.injected[kind] += 1
                group.create_task(known[kind]())

    def _length(self) -> float:
        """Return how long a fault lasts; it ends with the time of faults."""
        wanted = self._rng.choice((2.0, 20.0, 60.0, 400.0)) * self._rng.uniform(0.5, 1.5)
        return max(1.0, min(wanted, self.until - self._world.clock.monotonic()))

    async def _loss(self) -> None:
        network, seconds = self._world.network, self._length()
        self._add(f"messages are lost for {seconds:.1f} s")
        network.lost, network.cut = self._rng.uniform(0.01, 0.3), self._rng.uniform(0.0, 0.05)
        await asyncio.sleep(seconds)
        network.lost = network.cut = 0.0

    async def _delay(self) -> None:
        network, seconds = self._world.network, self._length()
        self._add(f"messages are slow for {seconds:.1f} s")
        network.slow = self._rng.uniform(0.01, 0.2)
        await asyncio.sleep(seconds)
        network.slow = 0.0

    async def _kill(self) -> None:
        member = self._rng.choice(self._world.members)
        if member.process.alive:
            self._add(f"{member.name} is killed")
            member.kill()

    async def _pause_process(self) -> None:
        process = self._rng.choice([member.process for member in self._world.members if member.process.alive] or [None])
        if process is not None:
            seconds = self._length()
            self._add(f"{process.name} is paused for {seconds:.1f} s")
            process.pause(seconds)

    async def _power(self) -> None:
        node = self._rng.choice(self._world.nodes)
        if node.running:
            seconds = self._length()
            self._add(f"{node.name} has no power for {seconds:.1f} s")
            node.fail()
            await asyncio.sleep(seconds)
            node.power_on()

    async def _partition(self) -> None:
        name = self._rng.choice([each.name for group in (self._world.nodes, self._world.members) for each in group])
        if name not in self._world.network.partitioned:
            seconds = self._length()
            self._add(f"{name} is cut off for {seconds:.1f} s")
            self._world.network.partitioned.add(name)
            await asyncio.sleep(seconds)
            self._world.network.partitioned.discard(name)

    def _add(self, text: str) -> None:
        self._trace.add("fault", text)
