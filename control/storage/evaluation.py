"""Evaluates the selectors of watches for changes: equal ones once, and their time is charged to the owner of the watches.

A change is compared with selectors in the step that applies it, until the comparisons of the event loop's iteration have taken
ITERATION_SECONDS. The rest waits for a task of its owner, as do costly selectors, and all selectors of an owner that has used
its share of time. The tasks work in slices, round robin over owners, so that nobody's watches delay those of others. Only
events that match enter a watcher's queue: a watcher that does not read is not dropped because of other changes.
"""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from collections import deque
from collections.abc import Hashable, Sequence

from control.storage.watcher import Change, WatchEvent
from control.storage.watcher_group import Account, Group
from kube import cancellation
from kube.fair_steps import FairSteps
from kube.step_limit import Limit, limited
from kube.step_shares import Shares

log = logging.getLogger(__name__)
STEP_SECONDS = 1.0
SHARE, PAUSE = 0.2, 10.0
"""Share of time of an owner, if it is not shared with requests, and seconds without evaluations after one was stopped."""
ITERATION_SECONDS, CONTINUED = 0.003, 64
"""Time of evaluations in an iteration of the event loop; number of waiting steps that continue in one."""
SLICE_SECONDS = 0.001
MOST_SECONDS = 0.001
"""Maximum time that is counted for one evaluation. It is measured by the wall clock, which costs less than the CPU clock: an
evaluation that takes longer was most likely interrupted by another process, which should not delay the next ones."""
CHARGED_SECONDS = 0.0005
"""Time after which an owner is charged: charging each evaluation would take longer than most evaluations."""


def evaluation_shares(requests: Shares | None = None) -> Shares:
    """Return the limits of evaluations; an owner's time is counted together with that of its requests."""
    fair = FairSteps(ITERATION_SECONDS, CONTINUED)
    return Shares("selectors of watches", STEP_SECONDS, SHARE, PAUSE, fair, every_step=True, shared_with=requests)


class Evaluations:
    """Evaluates selectors for the groups of all resources. Tasks end with `close`."""

    def __init__(self, limits: Shares | None = None) -> None:
        self._shares = limits or evaluation_shares()
        assert self._shares.fair is not None
        self._fair = self._shares.fair
        self._accounts: weakref.WeakValueDictionary[str, Account] = weakref.WeakValueDictionary()
        self._tasks = set[asyncio.Task[None]]()

    def account(self, owner: str) -> Account:
        """Return the account of an owner's groups, which keep it."""
        account = self._accounts.get(owner)
        if account is None:
            account = self._accounts[owner] = Account(owner)
        return account

    @property
    def waiting(self) -> int:
        """Number of owners for whom changes wait."""
        return len(self._tasks)

    def offer(self, change: Change, groups: Sequence[Group]) -> None:
        """Evaluate a change for groups, or let it wait."""
        room, events = self._fair.room(), dict[Hashable, WatchEvent | None]()
        expensive = set[Account]()
        used, last = 0.0, time.perf_counter()
        for group in groups:
            account, selector = group.account, group.selector
            if group.pending or account.late or selector.costly or used >= room:
                self._defer(group, change)
            else:
                key = selector.key
                if key is None or key not in events:
                    watch_event = group.evaluate(change)
                    if group.watchers:  # else it failed
                        events[key] = watch_event
                else:
                    watch_event = events[key]
                if watch_event is not None:
                    group.push(watch_event, change.revision)
            now = time.perf_counter()
            taken = min(now - last, MOST_SECONDS)
            used += taken
            account.spent += taken
            if account.spent > CHARGED_SECONDS:
                expensive.add(account)
            last = now
        self._fair.count(used)
        for account in expensive:
            self._charge(account)

    def _charge(self, account: Account) -> None:
        spent, account.spent = account.spent, 0.0
        self._shares.add(account.owner, spent, every_step=True)
        if self._shares.delay(account.owner):
            account.late = True

    def _defer(self, group: Group, change: Change) -> None:
        group.defer(change)
        if group.queued or not group.watchers:
            return
        account = group.account
        group.queued = True
        account.queue.append(group)
        if account.task is None:
            account.task = task = asyncio.create_task(self._run(account), name=f"selectors of {account.owner}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self, account: Account) -> None:
        """Evaluate what waits for an owner."""
        try:
            while account.queue:
                try:
                    await limited(self._evaluate(account), Limit(self._shares, account.owner))
                except (Exception, asyncio.CancelledError) as error:
                    if isinstance(error, asyncio.CancelledError) and cancellation.requested():
                        raise
                    self._fail(account, error)
        finally:
            account.task, account.late = None, False

    async def _evaluate(self, account: Account) -> None:
        while account.queue:
            while delay := self._shares.delay(account.owner):
                account.late = True
                await asyncio.sleep(delay)
            _evaluate_slice(account.queue)
            if account.queue:
                await asyncio.sleep(0)

    def _fail(self, account: Account, error: BaseException) -> None:
        """End the watches that wait for an evaluation which failed, or took too long."""
        log.error("watches of %s end: their selectors could not be evaluated: %r", account.owner, error)
        while account.queue:
            group = account.queue.popleft()
            group.queued = False
            group.drop()

    async def close(self) -> None:
        """Evaluate nothing more."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _evaluate_slice(queue: deque[Group]) -> None:
    """Evaluate changes of the groups of a queue, round robin, for a time slice or up to a costly selector."""
    until = time.perf_counter() + SLICE_SECONDS
    while queue:
        group = queue[0]
        if group.pending:
            group.evaluate_next()
        if group.pending:
            queue.rotate(-1)
        else:
            # Before it leaves the queue: the step limit may stop this anywhere, and `_fail` handles what the queue has.
            group.queued = False
            queue.popleft()
        if group.selector.costly or time.perf_counter() > until:
            break
