"""A device of a ResourceSlice, with the cached results of selectors."""

from __future__ import annotations

from decimal import Decimal
from functools import cached_property
from typing import Any

from control.cel import CompileError, EvaluationError, Result
from control.cel.devices import COST_LIMIT, device_value
from control.event_loop import inline
from control.scheduler.devices.budget import SearchBudget
from control.scheduler.devices.requests import Selector
from control.scheduler.devices.selector_results import SelectorResult, SelectorResults
from kube import quantity
from kube.api import resource_v1
from kube.step_limit import StepTooLong, limited_call
from kube.step_shares import Shares

DeviceId = tuple[str, str, str]
"""Driver, pool, device."""
_SHARES = Shares("device selectors", seconds=0.25, share=0.2, pause=10)
"""An evaluation on the event loop ends after 0.25 s of CPU time, ten times what its limit of cost takes at most.

A namespace whose evaluations there were long evaluates in the thread until they are its share of the time again.
"""
DEVICE_COST = 8
"""Units of cost to check a device: some microseconds."""


class SliceDevice:
    """A device of a ResourceSlice; `entry` is its element of the slice's `spec.devices`."""

    def __init__(self, slice_: resource_v1.ResourceSlice, device: resource_v1.Device) -> None:
        spec = slice_.spec
        self.driver, self.pool = spec.driver, spec.pool.name if spec.pool else ""
        self.id: DeviceId = (self.driver, self.pool, device.name)
        self.entry, self.slice = device, slice_
        self._results = SelectorResults()

    @property
    def shared(self) -> bool:
        """True if the device can be allocated to several requests."""
        return bool(self.entry.allow_multiple_allocations)

    @cached_property
    def _value(self) -> dict[str, Any]:
        return device_value(self.driver, self.entry)

    def result(self, selector: Selector) -> SelectorResult | None:
        """Return the cached result of a selector for the device."""
        return self._results.get(selector.digest)

    def evaluate(self, selector: Selector, budget: SearchBudget) -> SelectorResult:
        """Evaluate a selector and cache the result; another thread may do it.

        Raises TooMuchHere if it costs too much on the event loop, or the namespace has used its share there.
        """
        if inline.left() is not None and _SHARES.delay(budget.owner):
            raise inline.TooMuchHere
        found: SelectorResult
        try:
            result = limited_call(_SHARES, budget.owner, self._evaluated, selector)
            budget.charge(result.cost)
            found = result.value is True
        except CompileError as error:
            found = f"CEL compile error: {error}"
        except EvaluationError as error:
            budget.charge(error.cost)
            found = f"CEL runtime error: {error}"
        except StepTooLong as error:
            budget.charge(COST_LIMIT)
            found = f"CEL runtime error: {error}"
        return self._results.put(selector.digest, found)

    def _evaluated(self, selector: Selector) -> Result:
        return selector.program().evaluate({"device": self._value}, COST_LIMIT)

    @cached_property
    def cost(self) -> int:
        """Units of cost to check the device for a request, without the selectors."""
        capacity = len(self.entry.capacity) if self.shared else 0
        return DEVICE_COST * (1 + capacity) + 4 * len(self.entry.taints) + 2 * len(self.counters)

    @cached_property
    def capacity(self) -> dict[str, Decimal]:
        """The device's capacities by name, each with the domain left out where it is the driver's own."""
        prefix = f"{self.driver}/"
        return {name.removeprefix(prefix): quantity.parse(c.value) for name, c in self.entry.capacity.items()}

    @cached_property
    def counters(self) -> tuple[tuple[str, str, Decimal], ...]:
        """Counters that the device consumes of its pool: (set, counter, amount)."""
        return tuple(
            (consumption.counter_set, name, quantity.parse(counter.value))
            for consumption in self.entry.consumes_counters
            for name, counter in consumption.counters.items()
        )
