"""The observer of one member of the control plane: a client that follows some scopes there, and reads registers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable

from control.auth.user import UserInfo
from kube.client import Client
from kube.errors import StatusError
from simulation.link import Link
from simulation.observers.follower import Follower, Report
from simulation.observers.registers import COLOURS, NAMES, NAMESPACES, path_of
from simulation.oracles.true_history import Scope, TrueHistory
from simulation.oracles.violations import Violation
from simulation.oracles.watches import Broken, check_get
from simulation.processes import Process
from simulation.world import ControlPlane, World

PODS, MAPS, REPLICA_SETS, NAMESPACE_FOLDER = (
    "/registry/pods/",
    "/registry/configmaps/",
    "/registry/replicasets/",
    "/registry/namespaces/",
)
FOLDERS = (PODS, MAPS, REPLICA_SETS, NAMESPACE_FOLDER)
READ_PAUSE = 6.0
"""Mean seconds between two reads of a register."""


def scopes(rng: random.Random) -> list[Scope]:
    """Return what an observer follows: pods, registers by a label, and one other scope."""
    others = [
        Scope("/api/v1/pods", PODS, label=("app", "deployment-web")),
        Scope("/api/v1/pods", PODS, node="node-1"),
        Scope("/api/v1/namespaces/shop/pods", PODS, namespace="shop"),
        Scope("/apis/apps/v1/replicasets", REPLICA_SETS),
        Scope("/api/v1/namespaces", NAMESPACE_FOLDER),
        Scope("/api/v1/configmaps", MAPS),
    ]
    coloured = Scope(path_of("shop"), MAPS, namespace="shop", label=("colour", rng.choice(COLOURS)))
    everywhere = Scope("/api/v1/configmaps", MAPS, label=("colour", rng.choice(COLOURS)))
    return [Scope("/api/v1/pods", PODS), rng.choice((coloured, everywhere)), rng.choice(others)]


class Observer:
    """The observer of a member."""

    def __init__(
        self,
        world: World,
        member: ControlPlane,
        number: int,
        history: TrueHistory,
        rng: random.Random,
        report: Report,
        record: Callable[[bytes], None],
    ) -> None:
        self.name, self._history, self._rng, self._report = f"observer-{number}", history, rng, report
        self.process = Process(self.name, world.scheduler)
        world.observers.append(self.process)
        self.counts: Counter[str] = Counter()
        user = UserInfo(self.name, groups=("system:masters",))
        self._client = Client(Link(world.network, lambda: member, user, self.name))
        self._tasks: list[asyncio.Task[None]] = []
        self._followers = [
            Follower(self._client, scope, history, random.Random(rng.random()), report, self.counts, record)
            for scope in scopes(rng)
        ]

    def start(self) -> None:
        """Observe in a process of its own."""
        work = [*(follower.run() for follower in self._followers), self._read()]
        self._tasks = [self.process.start(each) for each in work]

    def check(self) -> None:
        """Raise the error that has ended the observer, if there is one: it is one of the simulation."""
        for task in self._tasks:
            if task.done():
                task.result()

    def overdue(self) -> Iterable[Broken]:
        """Return the events that the watches did not send. To be called when nothing has changed for minutes."""
        for follower in self._followers:
            yield from follower.overdue()

    async def _read(self) -> None:
        """Read registers at "most recent"."""
        while True:
            namespace, name = self._rng.choice(NAMESPACES), self._rng.choice(NAMES)
            scope, begun = Scope(path_of(namespace), MAPS, namespace), self._history.revision
            with contextlib.suppress(StatusError):
                try:
                    obj = json.loads(await self._client.call("GET", path_of(namespace, name)))
                except StatusError as error:
                    if error.code != 404:
                        raise
                    obj = None
                self.counts["reads"] += 1
                self._report(check_get(self._history, scope, f"{MAPS}{namespace}/{name}", obj, begun))
            await asyncio.sleep(self._rng.expovariate(1 / READ_PAUSE))


class Observers:
    """One observer for each member of a cluster."""

    def __init__(
        self,
        world: World,
        rng: random.Random,
        report: Callable[[Violation], None],
        record: Callable[[bytes], None],
    ) -> None:
        history = TrueHistory(world.store, FOLDERS)

        def broken(found: Iterable[Broken]) -> None:
            for rule, text in found:
                report(Violation(rule, text, world.clock.monotonic()))

        self._report = broken
        self.all = [
            Observer(world, member, number, history, random.Random(rng.random()), broken, record)
            for number, member in enumerate(world.members, 1)
        ]

    def start(self) -> None:
        """Start the processes of all."""
        for each in self.all:
            each.start()

    def finish(self) -> dict[str, int]:
        """Check that nothing is missing after some minutes without changes, and return what has been checked."""
        counts: Counter[str] = Counter()
        for each in self.all:
            each.check()
            self._report(each.overdue())
            counts += each.counts
        return dict(counts)
