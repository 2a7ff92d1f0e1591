"""Slots of threads that work on files: a few at a time, fair by namespace, of which calls that block hold none.

All threads share the interpreter with the event loop, which waits for seconds if a hundred of them are runnable. So at most
`NODE` calls hold a slot, `NAMESPACE` of them for pods of one namespace; the others wait, in round robin over namespaces. Work
on many files calls `pause` for each: it passes its slot on after `SLICE` if others wait, so a volume of millions of files
delays nobody for longer. Calls that have not begun come before those that resume, which have every `TURN`th slot of their
namespace: most calls are short, and would wait for a slice of each long one. A call that used no CPU time for `BLOCKED` waits
for a file system and loses its slot, so that a server that is gone takes no slots; if the call continues, it waits for another
slot at its next `pause`.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from weakref import WeakKeyDictionary

NODE, NAMESPACE = 4, 2
"""Calls that hold a slot, on the node and for the pods of one namespace."""
SLICE = 0.2
"""Seconds that a call holds a slot while others wait: most calls return within it, so pods are ready one after another."""
TURN = 4
"""Of so many slots of a namespace one is for a call that resumes, if new ones wait, too."""
BLOCKED = 0.25
"""Seconds without CPU time after which a call loses its slot. One that waits for the interpreter uses some every 5 ms."""
IDLE_NANOSECONDS = 20_000
"""CPU time in such a span that counts as none."""
_local = threading.local()


def pause() -> None:
    """Let others work, if this is a call with a slot that had its time; to be called between two files."""
    work: Work | None = getattr(_local, "work", None)
    if work is not None:
        work.pause()


@dataclass(eq=False, slots=True)
class Work:
    """A call that has its thread, which `start` begins."""

    slots: ThreadSlots
    namespace: str
    start: Callable[[], None]
    holds_slot: bool = False
    begun: bool = False
    waits: bool = True
    """It waits for a slot."""
    since: float = 0.0
    """Time of the last slot or pause."""
    _granted: threading.Event = field(default_factory=threading.Event)
    _thread: tuple[int, int] | None = None
    """ID of the thread and of its CPU clock."""
    _used: tuple[float, int] = (0.0, 0)
    """Time at which the CPU time was last found to have grown, and the CPU time."""

    def enter_thread(self) -> None:
        """Make `pause` in this thread one of this call."""
        clock = time.pthread_getcpuclockid(threading.get_ident())
        self._thread = threading.get_native_id(), clock
        _local.work = self

    def pause(self) -> None:
        """Pass the slot on, or wait for one where it was lost."""
        now = time.monotonic()
        if self.holds_slot:
            if now - self.since < SLICE:
                return
            if not self.slots.contended:
                self.since = now
                return
        self._granted.clear()
        loop = self.slots.loop
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(self.slots.wait_again, self)
            while not self._granted.wait(1.0) and not loop.is_closed():
                pass

    def grant(self) -> None:
        """Continue, or begin."""
        self.since = time.monotonic()
        self._used = self.since, 0
        self.holds_slot, self.waits = True, False
        if self.begun:
            self._granted.set()
        else:
            self.begun = True
            self.start()

    def hangs(self, seconds: float) -> bool:
        """Return whether the call has neither returned nor paused for so long."""
        return self.begun and not self.waits and time.monotonic() - self.since > seconds

    def is_blocked(self) -> bool:
        """Return whether the thread waits for something else than the interpreter or a CPU."""
        if self._thread is None:
            return False
        task, clock = self._thread
        now = time.monotonic()
        try:
            used = time.clock_gettime_ns(clock)
        except OSError:  # it has ended
            return False
        if used - self._used[1] > IDLE_NANOSECONDS:
            self._used = now, used
        return now - self._used[0] > BLOCKED and not _is_runnable(task)


class _Queue:
    """The calls of a namespace that wait for a slot."""

    def __init__(self) -> None:
        self._new, self._resuming = deque[Work](), deque[Work]()
        self._passed = 0
        """New calls in a row that came before one that resumes."""

    def __len__(self) -> int:
        return len(self._new) + len(self._resuming)

    def add(self, work: Work) -> None:
        (self._resuming if work.begun else self._new).append(work)

    def take(self) -> Work:
        """Return the next call and remove it."""
        if self._new and (not self._resuming or self._passed < TURN - 1):
            self._passed += 1
            return self._new.popleft()
        self._passed = 0
        return self._resuming.popleft()


class ThreadSlots:
    """The slots of one event loop, and the calls that wait for one."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.contended = False
        """Calls wait for a slot."""
        self._holding: dict[Work, None] = {}
        self._waiting: dict[str, _Queue] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """The number of calls that wait for a slot."""
        return sum(map(len, self._waiting.values()))

    def enter(self, work: Work) -> None:
        """Begin the call at once or when it has a slot."""
        work.waits = True
        self._waiting.setdefault(work.namespace, _Queue()).add(work)
        self._grant()

    def leave(self, work: Work) -> None:
        """Take back the slot of a call that has returned."""
        self._take(work)
        self._grant()

    def wait_again(self, work: Work) -> None:
        """Have a call wait for its next slot."""
        self._take(work)
        self.enter(work)

    def _take(self, work: Work) -> None:
        self._holding.pop(work, None)
        work.holds_slot = False

    def _grant(self) -> None:
        while len(self._holding) < NODE and (namespace := self._next()) is not None:
            queue = self._waiting.pop(namespace)
            work = queue.take()
            if queue:
                self._waiting[namespace] = queue  # behind the others
            self._holding[work] = None
            work.grant()
        self.contended = bool(self._waiting)
        if self.contended and self._timer is None:
            self._timer = self.loop.call_later(BLOCKED, self._take_from_blocked)

    def _next(self) -> str | None:
        """Return the namespace whose turn it is."""
        busy = Counter(work.namespace for work in self._holding)
        return next((namespace for namespace in self._waiting if busy[namespace] < NAMESPACE), None)

    def _take_from_blocked(self) -> None:
        self._timer = None
        for work in list(self._holding):
            if work.is_blocked():
                self._take(work)
        self._grant()


def _is_runnable(task: int) -> bool:
    """Return whether a thread of this process waits for nothing but a CPU."""
    try:
        return Path(f"/proc/self/task/{task}/stat").read_text().rpartition(")")[2].split()[0] == "R"
    except (OSError, IndexError):
        return False


_slots: WeakKeyDictionary[asyncio.AbstractEventLoop, ThreadSlots] = WeakKeyDictionary()


def of_loop() -> ThreadSlots:
    """Return the slots of the running loop."""
    loop = asyncio.get_running_loop()
    found = _slots.get(loop)
    if found is None:
        found = _slots[loop] = ThreadSlots()
    return found
