"""Finding devices for claims on one node: a search in depth that takes devices in their order and goes back where it must.

For every claim each request in turn, of it the preferred alternative first, and of that as many devices as are wanted. A device
is taken where the selectors of class and request match, its taints are tolerated, the claim's constraints hold, and nobody else
has it, or its pool's counters. The first complete solution is the one. Upstream: dynamic-resource-allocation/structured.

The search can take exponentially long. It goes on step by step, and stops where it has cost what it may on the event loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import TypeVar

from control import inline
from control.scheduler.devices.book import Book
from control.scheduler.devices.budget import Budget
from control.scheduler.devices.capacity import consumption
from control.scheduler.devices.constraints import Constraint, constraints
from control.scheduler.devices.inventory import LOOK, DeviceId, Offer, Pool, View
from control.scheduler.devices.requests import MOST_RESULTS, DeviceError, Need, Selector, Wanted
from kube.device_taints import untolerated

Offers = list[tuple[Offer, Pool]]
ZERO = Decimal(0)
STEPS = 256
"""The budget is looked at every so many devices, and before each evaluation of a selector."""
CONSTRAINT = 2 * LOOK
"""Units of cost to see whether a device goes with those taken before."""
MOST = inline.MOST // 2
"""The most that one step is said to cost, so that it can always be made."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Question:
    """A selector's result for a device, which must be known before the search continues."""

    selector: Selector
    offer: Offer


Steps = Generator[Question | None, None, T]
"""Work that yields where it has cost too much on the event loop for now; what it yields is to be answered elsewhere."""


class PoolNotReady(DeviceError):
    """All devices are wanted, and how many that are is not known at the moment."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A device that a claim is given."""

    need: Need
    offer: Offer
    consumed: dict[str, Decimal]


class Search:
    """The search for all claims of a pod on one node."""

    def __init__(self, claims: Sequence[Wanted], view: View, book: Book, budget: Budget) -> None:
        self._claims, self._book, self._budget = claims, book, budget
        self._pools, self._offers = view.pools, view.offers
        self._constraints = [constraints(wanted.constraints) for wanted in claims]
        self._results: list[list[Taken]] = [[] for _ in claims]
        self._mine: Counter[DeviceId] = Counter()
        """Devices allocated in this search, but those for administrators."""
        self._used: dict[DeviceId, dict[str, Decimal]] = {}
        self._left: dict[int, dict[tuple[str, str], Decimal]] = {}
        """What is left of a pool's counters."""
        self._everything: dict[int, Offers] = {}
        self._steps = 0
        self._question: Question | None = None

    def steps(self) -> Steps[list[list[Taken]] | None]:
        """Return the devices of each claim; None where the node has not what they need.

        Raises DeviceError where a claim is wrong, SearchTimeout.
        """
        return self._results if (yield from self._request(0, 0)) else None

    def still(self, found: Sequence[Sequence[Taken]]) -> bool:
        """Take what an earlier search found on the same view; False where it is not available any more."""
        pools = {offer.id: pool for offer, pool in self._offers}
        return all(
            self._take(claim, taken.need, taken.offer, pools[taken.offer.id]) is not None
            for claim, devices in enumerate(found)
            for taken in devices
        )

    # -- the search -------------------------------------------------------------------------------------------------
    def _request(self, claim: int, request: int) -> Steps[bool]:
        while claim < len(self._claims) and request == len(self._claims[claim].requests):
            claim, request = claim + 1, 0
        if claim == len(self._claims):
            return True
        for need in self._claims[claim].requests[request]:
            if (yield from self._alternative(claim, request, need)):
                return True
        return False

    def _alternative(self, claim: int, request: int, need: Need) -> Steps[bool]:
        offers = (yield from self._all(need)) if need.everything else self._offers
        count = len(offers) if need.everything else need.count
        return count > 0 and (yield from self._devices(claim, request, need, count, offers, 0))

    def _devices(self, claim: int, request: int, need: Need, left: int, offers: Offers, start: int) -> Steps[bool]:
        """Take `left` more devices, from `start` on: in which order a request gets its devices does not matter."""
        if not left:
            return (yield from self._request(claim, request + 1))
        for position in range(start, start + 1 if need.everything else len(offers)):
            offer, pool = offers[position]
            undo = yield from self._patiently(partial(self._take, claim, need, offer, pool))
            if undo is None:
                continue
            again = offer.shared and not need.everything
            if (yield from self._devices(claim, request, need, left - 1, offers, position if again else position + 1)):
                return True
            undo()
        return False

    def _all(self, need: Need) -> Steps[Offers]:
        """Return every device that a request for all means; raises DeviceError while that cannot be said."""
        known = self._everything.get(id(need))
        if known is None:
            for pool in self._pools:
                if pool.incomplete or pool.invalid:
                    state = "being updated" if pool.incomplete else "invalid"
                    name = f"{pool.driver}/{pool.name}"
                    raise PoolNotReady(
                        f"request {need.name}: asks for all devices, but resource pool {name} is currently {state}"
                    )
            known = []
            for offer, pool in self._offers:
                if (yield from self._patiently(partial(self._selected, need, offer))):
                    known.append((offer, pool))
            self._everything[id(need)] = known
        return known

    def _patiently(self, work: Callable[[], T]) -> Steps[T]:
        """Return what `work` returns; where it costs too much for now it is begun anew later."""
        while True:
            try:
                return work()
            except inline.TooMuchHere:
                self._budget.check()
                yield self._question

    # -- one device -------------------------------------------------------------------------------------------------
    def _take(self, claim: int, need: Need, offer: Offer, pool: Pool) -> Callable[[], None] | None:
        """Take a device and return what gives it back; None where it is not available."""
        self._question = None
        inline.spent(min(offer.price + LOOK * len(need.capacity) + CONSTRAINT * len(self._constraints[claim]), MOST))
        self._steps += 1
        if self._steps % STEPS == 0:
            self._budget.check()
        results = self._results[claim]
        if len(results) >= MOST_RESULTS or not self._free(need, offer, results):
            return None
        if pool.invalid or not self._selected(need, offer) or untolerated(offer.device.taints, need.tolerations):
            return None
        consumed = consumption(offer, need.capacity, {} if need.admin else self._usage(offer))
        if consumed is None or not (need.admin or self._charge(offer, pool, -1)):
            return None
        held: list[Constraint] = []
        for constraint in self._constraints[claim]:
            if constraint.concerns(need):
                if not constraint.add(offer):
                    for other in held:
                        other.remove()
                    if not need.admin:
                        self._charge(offer, pool, 1)
                    return None
                held.append(constraint)
        results.append(Taken(need, offer, consumed))
        if not need.admin:
            self._count(offer, consumed, 1)

        def undo() -> None:
            results.pop()
            for constraint in held:
                constraint.remove()
            if not need.admin:
                self._count(offer, consumed, -1)
                self._charge(offer, pool, 1)

        return undo

    def _selected(self, need: Need, offer: Offer) -> bool:
        self._question = None
        inline.spent(len(need.selectors))
        for selector in need.selectors:
            verdict = offer.verdict(selector)
            if verdict is None:
                self._budget.check()
                self._question = Question(selector, offer)
                verdict = offer.evaluate(selector, self._budget)
            if isinstance(verdict, str):
                raise DeviceError(f"{selector.where}: {verdict}")
            if not verdict:
                return False
        self._question = None
        return True

    def _free(self, need: Need, offer: Offer, results: Sequence[Taken]) -> bool:
        if need.admin:  # sees what others have, but has nothing twice
            return all(taken.offer.id != offer.id for taken in results)
        return offer.shared or not (offer.id in self._book.taken or self._mine[offer.id])

    def _usage(self, offer: Offer) -> dict[str, Decimal]:
        before, now = self._book.consumed.get(offer.id, {}), self._used.get(offer.id, {})
        return {name: before.get(name, ZERO) + now.get(name, ZERO) for name in before.keys() | now.keys()}

    def _count(self, offer: Offer, consumed: dict[str, Decimal], sign: int) -> None:
        self._mine[offer.id] += sign
        used = self._used.setdefault(offer.id, {})
        for name, amount in consumed.items():
            used[name] = used.get(name, ZERO) + sign * amount

    def _charge(self, offer: Offer, pool: Pool, sign: int) -> bool:
        """Take a device's counters from its pool (-1) or give them back (1); False where there is not so much left."""
        if not offer.counters or (offer.shared and self._in_use(offer)):
            return True  # a shared device takes its counters once
        left = self._left.get(id(pool))
        if left is None:
            inline.spent(min(len(pool.everything), MOST // 2))
            left = self._left[id(pool)] = dict(pool.counters)
            for other in pool.everything:
                if other.id in self._book.taken:
                    for set_, name, amount in other.counters:
                        left[set_, name] = left.get((set_, name), ZERO) - amount
        if sign < 0 and any(left.get((set_, name), ZERO) < amount for set_, name, amount in offer.counters):
            return False
        for set_, name, amount in offer.counters:
            left[set_, name] = left.get((set_, name), ZERO) + sign * amount
        return True

    def _in_use(self, offer: Offer) -> bool:
        return offer.id in self._book.taken or self._mine[offer.id] > 0
