"""One run: a cluster, users and faults for some time, then peace until everything is settled."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
from collections import Counter
from collections.abc import Callable

import msgspec

from kube.client import MERGE, Client
from kube.errors import StatusError
from simulation import processes
from simulation.event_loop import Deadlock, Scheduler, Stopped
from simulation.faults import KINDS, Faults
from simulation.history import History
from simulation.observers.observer import Observers
from simulation.observers.registers import Writer
from simulation.oracles.convergence import unsettled
from simulation.oracles.levels import leaks, levels, lowest
from simulation.oracles.objects import Objects
from simulation.oracles.safety import Safety
from simulation.oracles.violations import Violation
from simulation.sources import replaced
from simulation.timeline import Timeline
from simulation.trace import Trace
from simulation.workload import User
from simulation.world import World, prepare
from wherry.testing.nodes.scripts import Exit, Outcome, Run, Start

SETTLE_SECONDS = 2400.0
"""Virtual seconds after the last fault in which everything must be settled: the longest back-off is 1 000 s."""
HEAL_SECONDS = 900.0
"""Longest time for which the API may not answer after the last fault: a member may be paused for 10 minutes."""
QUIET_SECONDS = 300.0
"""Virtual seconds without a write, except heartbeats, that a settled cluster must have."""


class Settings(msgspec.Struct, frozen=True):
    """Size, length and faults of a run."""

    hours: float = 1.0
    """Virtual time with users and faults."""
    members: int = 3
    nodes: int = 5
    users: int = 2
    observers: bool = True
    """Clients that watch and read on each member."""
    register_pause: float = 4.0
    """Mean seconds between two writes of the registers that observers read."""
    user_pause: float = 15.0
    """Mean seconds between two actions of a user."""
    fault_pause: float = 60.0
    """Mean seconds between two faults."""
    faults: tuple[str, ...] = KINDS
    dropped_faults: tuple[int, ...] = ()
    dropped_steps: tuple[int, ...] = ()
    """Numbers of faults and of the users' steps that are left out."""
    registers: bool = True
    """A user writes the registers."""
    timeline: bool = False
    """The result has the timeline."""
    stop_at: str = ""
    """Rule whose first violation ends the run."""


class Result(msgspec.Struct):
    """Result of a run."""

    seed: int
    digest: str = ""
    seconds: float = 0.0
    """Virtual time."""
    iterations: int = 0
    writes: int = 0
    settled_after: float | None = None
    faults: dict[str, int] = {}
    requests: dict[str, int] = {}
    observed: dict[str, int] = {}
    """Number of events, lists and reads that were checked."""
    violations: list[Violation] = []
    fault_numbers: list[int] = []
    step_numbers: list[int] = []
    """Numbers of the faults and of the users' steps."""
    lines: list[str] = []
    """The timeline, if it was requested."""


def simulate(seed: int, settings: Settings) -> Result:
    """Run one seed. Its trace depends on nothing else, if this Python process has done the same before."""
    prepare()
    logging.disable(logging.CRITICAL)
    rng = random.Random(seed)
    scheduler = Scheduler(random.Random(rng.random()))
    result = Result(seed)
    gc.disable()  # it would end coroutines of killed processes, which are garbage, and the run takes seconds
    try:
        with replaced(random.Random(rng.random()), lambda: scheduler.seconds):
            scheduler.run(_run(scheduler, rng, settings, result))
    except Stopped:
        pass  # as requested
    except Deadlock:
        result.violations.append(Violation("deadlock", "nothing will ever run again", scheduler.seconds))
    finally:
        gc.enable()
        logging.disable(logging.NOTSET)
    result.faults = dict(result.faults)
    result.step_numbers.sort()
    result.seconds, result.iterations = scheduler.seconds, scheduler.iterations
    processes.forget_killed()
    return result


async def _run(scheduler: Scheduler, rng: random.Random, settings: Settings, result: Result) -> None:
    world = World(scheduler, rng, members=settings.members, nodes=settings.nodes)
    timeline = Timeline() if settings.timeline else None
    trace, objects = Trace(world.store, lambda: scheduler.seconds, timeline), Objects(world.store)
    history = History(trace)

    def report(violation: Violation) -> None:
        trace.add("violation", f"{violation.rule}: {violation.text}")
        result.violations.append(msgspec.structs.replace(violation, step=scheduler.iterations))
        scheduler.stopped = violation.rule == settings.stop_at

    safety = Safety(world, objects, history, report)
    end = settings.hours * 3600
    world.scripts.add("*", _containers(random.Random(rng.random()), world, end), optional=True)
    faults = Faults(
        world, random.Random(rng.random()), trace, settings.fault_pause, settings.faults, settings.dropped_faults
    )
    users = [
        User(world, random.Random(rng.random()), history, settings.user_pause, number, settings.dropped_steps)
        for number in range(settings.users)
    ]
    result.fault_numbers, result.faults = faults.numbers, faults.injected
    writer = Writer(world.client(), random.Random(rng.random()), history, settings.register_pause)
    seed = random.Random(rng.random())
    observers = Observers(world, seed, report, trace.count) if settings.observers else None
    faults.until, clients = end, processes.Process("users", scheduler)
    world.start()
    checking = asyncio.create_task(safety.run())
    if observers is not None:
        observers.start()
    await asyncio.sleep(5)
    working = []
    actors: list[User | Writer] = [*users, *([writer] if settings.registers else [])]
    for each in actors:
        if isinstance(each, User):
            each.steps = result.step_numbers
        each.until = end
        working.append(clients.start(each.run()))
    await faults.run()
    await _until(lambda: all(task.done() for task in working), end + 600)
    await _heal(world, report)
    since = scheduler.seconds
    await _settle(scheduler, world, objects, report)
    if observers is not None:
        result.observed = observers.finish()
    result.settled_after = None if any(v.rule == "settled" for v in result.violations) else scheduler.seconds - since
    checking.cancel()
    result.digest, result.writes = trace.digest(), trace.writes
    result.lines = list(timeline.lines) if timeline is not None else []
    result.requests = dict(history.outcomes)
    for failure in objects.failures:
        raise failure
    for task in (*working, checking):
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            raise error


def _containers(rng: random.Random, world: World, end: float) -> Callable[[Start], Outcome]:
    """Return what containers do: those of Jobs end, some fail or take their time until users and faults end."""

    def outcome(start: Start) -> Outcome:
        calm = world.clock.monotonic() >= end
        if start.labels.get("app", "").startswith("job-"):
            return Exit(code=0 if calm or rng.random() < 0.9 else 1, after=rng.uniform(1, 60))
        if not calm and rng.random() < 0.05:
            return Exit(code=1, after=rng.uniform(1, 30))
        return Run(ready_after=rng.uniform(0, 10), stop_seconds=rng.choice((0.0, 1.0, 40.0)))

    return outcome


async def _heal(world: World, report: Callable[[Violation], None]) -> None:
    """Undo what users and faults have left: nodes without power or room, cordons and limits of quotas."""
    network = world.network
    network.lost = network.cut = network.slow = 0.0
    network.partitioned.clear()
    network.late.clear()
    for node in world.nodes:
        node.power_on()
    changes = [(f"/api/v1/nodes/{node.name}", b'{"spec":{"unschedulable":null}}') for node in world.nodes]
    for namespace in ("default", "shop", "batch"):
        path = f"/api/v1/namespaces/{namespace}/resourcequotas/small"
        changes.append((path, b'{"spec":{"hard":{"pods":"1000"}}}'))
    client = world.client()
    for path, body in changes:
        try:
            async with asyncio.timeout(HEAL_SECONDS):
                await _persist(client, path, body)
        except TimeoutError:
            report(Violation("service", f"PATCH {path} fails for {HEAL_SECONDS:g} s", world.clock.monotonic()))
            return


async def _persist(client: Client, path: str, body: bytes) -> None:
    while True:
        try:
            await client.call("PATCH", path, body=body, content_type=MERGE)
            return
        except StatusError as error:
            if error.code == 404:
                return
            await asyncio.sleep(5)


async def _until(condition: Callable[[], bool], most: float) -> bool:
    for _ in range(int(most)):
        if condition():
            return True
        await asyncio.sleep(1)
    return False


async def _settle(scheduler: Scheduler, world: World, objects: Objects, report: Callable[[Violation], None]) -> None:
    """Wait until everything is settled and nothing is written any more."""
    end = scheduler.seconds + SETTLE_SECONDS
    while True:
        left = sorted(unsettled(objects, len(world.nodes)))
        if not left:
            break
        if scheduler.seconds >= end:
            for text in left[:10]:
                report(Violation("settled", text, scheduler.seconds))
            return
        await asyncio.sleep(10)
    before = scheduler.seconds
    newest = objects.changes[-1][0] if objects.changes else 0
    await asyncio.sleep(QUIET_SECONDS / 2)  # a new leader has started its controllers by then
    level = levels(world.members)
    await asyncio.sleep(QUIET_SECONDS / 2)
    samples = []
    for _ in range(5):
        samples.append(levels(world.members))
        await asyncio.sleep(1.7)
    for rule, text in leaks(level, lowest(samples)):
        report(Violation(rule, text, scheduler.seconds))
    changed = Counter(key for revision, key in objects.changes if revision > newest)
    if changed:
        text = ", ".join(f"{key} ({number})" for key, number in changed.most_common(5))
        report(
            Violation("quiet", f"a cluster that was settled at {before:.0f} s is written to: {text}", scheduler.seconds)
        )
