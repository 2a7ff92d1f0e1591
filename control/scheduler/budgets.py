"""The disruption budgets that pods are counted in, as preemption requests them: their selectors are read once and kept.

Small selectors of a namespace are compared all together (alternatives.py). Large ones are compiled outside the event
loop, until when a budget counts as it did before, and compared one by one at the price of what they cost; results are
cached, so that an attempt which runs out of steps leaves the next one less to do. A cached result is deleted with its pod
and with its budget.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Mapping

from control.event_loop import offload
from control.scheduler.alternatives import Alternatives
from control.scheduler.framework import PluginError
from control.scheduler.podinfo import PodInfo
from control.scheduler.steps import Steps
from kube.api import meta_v1, policy_v1
from kube.informer import Change
from kube.selectors import NOTHING, LabelSelector, SelectorError, from_label_selector

Budget = policy_v1.PodDisruptionBudget
LARGE, TOGETHER = 128, 4096
"""Requirements of one selector, and of a namespace's, up to which selectors are compared together."""
COMPILED_BESIDE = 256
"""Labels and expressions of a selector from which on it takes a millisecond and more to compile."""
COMPARED = 5
"""Steps of comparisons that are one step of an attempt, as a power of two: those take 2 µs, a check whether a pod fits 60."""
MOST_REMEMBERED = 4096
"""Cached results of comparisons: 300 bytes each, for the labels are the pod's and are freed with it."""
_Results = weakref.WeakKeyDictionary[PodInfo, tuple[Mapping[str, str], bool]]
"""By pod the labels that a selector was compared with, and whether it selects them."""


class _Namespace:
    """The budgets of a namespace, by key."""

    def __init__(self) -> None:
        self.budgets: dict[str, Budget] = {}
        self.selectors: dict[str, LabelSelector] = {}
        self._together: tuple[list[str], Alternatives] | None = None
        self._alone: dict[str, LabelSelector] = {}

    def put(self, key: str, selector: LabelSelector | None) -> None:
        """Store a budget's selector, or forget the budget."""
        if selector is not None:
            self.selectors[key] = selector
        else:
            self.selectors.pop(key, None)
            self.budgets.pop(key, None)
        self._together = None

    def together(self, labels: Mapping[str, str]) -> list[str]:
        """Return the budgets with small selectors that select these labels."""
        if self._together is None:
            self._together = self._joined()
        keys, alternatives = self._together
        found, result = alternatives.matching(labels), []
        while found:
            lowest = found & -found
            result.append(keys[lowest.bit_length() - 1])
            found ^= lowest
        return result

    def alone(self) -> Mapping[str, LabelSelector]:
        """Return the selectors that `together` leaves out."""
        if self._together is None:
            self._together = self._joined()
        return self._alone

    def _joined(self) -> tuple[list[str], Alternatives]:
        room, keys, self._alone = TOGETHER, list[str](), {}
        for key, selector in self.selectors.items():
            size = len(selector.requirements) + sum(len(r.values) for r in selector.requirements[:LARGE])
            if selector.nothing or selector.empty:
                continue  # upstream: one without any requirement selects nothing here
            if size > LARGE or size > room:
                self._alone[key] = selector
            else:
                room -= size
                keys.append(key)
        chosen = (self.selectors[key].requirements for key in keys)
        return keys, Alternatives([[(r.key, r.operator, r.values) for r in requirements] for requirements in chosen])


class Budgets:
    """All budgets. `changed` handles an informer's changes; `listed` says whether it has its first list."""

    def __init__(self, listed: Callable[[], bool] = lambda: True) -> None:
        self._listed = listed
        self._namespaces: dict[str, _Namespace] = {}
        self._written: dict[str, meta_v1.LabelSelector | None] = {}
        self._results: dict[str, tuple[LabelSelector, _Results]] = {}
        """By budget its selector, and what came of comparing it."""
        self._cached = 0
        self._cost = 0
        """Cost of comparisons that is not charged to an attempt's steps yet: less than a step's."""
        self._compiling: set[asyncio.Task[None]] = set()

    def check_listed(self) -> None:
        """Raise PluginError while it is not known which budgets there are."""
        if not self._listed():
            raise PluginError("no pod is preempted before disruption budgets can be listed")

    def changed(self, change: Change[Budget]) -> None:
        """Process a change."""
        key, budget = change.key, change.new
        namespace, source = budget.metadata.namespace or "", budget.spec.selector
        if change.type == "DELETED":
            self._written.pop(key, None)
            self._results.pop(key, None)
            if namespace in self._namespaces:
                self._namespaces[namespace].put(key, None)
                if not self._namespaces[namespace].budgets:
                    del self._namespaces[namespace]
            return
        self._namespaces.setdefault(namespace, _Namespace()).budgets[key] = budget
        if key in self._written and self._written[key] == source:
            return
        self._written[key] = source
        self._results.pop(key, None)
        if source is not None and len(source.match_labels) + len(source.match_expressions) > COMPILED_BESIDE:
            task = asyncio.get_running_loop().create_task(self._compile(key, namespace, source))
            self._compiling.add(task)
            task.add_done_callback(self._compiling.discard)
        else:
            self._namespaces[namespace].put(key, _compiled(source))

    async def _compile(self, key: str, namespace: str, source: meta_v1.LabelSelector) -> None:
        selector = await offload.complete(namespace, _compiled, source)
        if self._written.get(key) is source:
            self._results.pop(key, None)
            self._namespaces[namespace].put(key, selector)

    def of(self, pod: PodInfo, steps: Steps) -> list[Budget]:
        """Return the budgets that a pod is counted in; raises OutOfSteps, and what `steps.pause` raises."""
        here = self._namespaces.get(pod.namespace)
        if here is None:
            return []
        keys = here.together(pod.labels)
        keys += [key for key, selector in here.alone().items() if self._selects(key, selector, pod, steps)]
        return [here.budgets[key] for key in keys]

    def _selects(self, key: str, selector: LabelSelector, pod: PodInfo, steps: Steps) -> bool:
        labels, cost = pod.labels, selector.cost(pod.labels)
        compared, results = self._results.get(key, (selector, _NO_RESULTS))
        known = results.get(pod) if compared is selector else None
        if known is not None and known[0] is labels:
            return known[1]
        self._cost += cost
        steps.take(self._cost >> COMPARED)
        self._cost &= (1 << COMPARED) - 1
        found = selector.matches(labels)
        if cost >> COMPARED:
            self._cache(key, selector, pod, found=found)
            steps.pause()
        return found

    def _cache(self, key: str, selector: LabelSelector, pod: PodInfo, *, found: bool) -> None:
        known = self._results.get(key)
        if known is None or known[0] is not selector:
            known = self._results[key] = selector, _Results()
        known[1][pod] = pod.labels, found
        self._cached += 1
        if self._cached > MOST_REMEMBERED:  # those of pods that are gone are still in this sum
            self._cached = sum(len(results) for _, results in self._results.values())
            while self._cached > MOST_REMEMBERED // 2:
                self._cached -= len(self._results.pop(next(iter(self._results)))[1])


_NO_RESULTS = _Results()


def budgets_of(*budgets: Budget) -> Budgets:
    """Return budgets that do not change."""
    found = Budgets()
    for budget in budgets:
        found.changed(Change("ADDED", None, budget))
    return found


def _compiled(source: meta_v1.LabelSelector | None) -> LabelSelector:
    try:
        selector = from_label_selector(source)
    except SelectorError:
        return NOTHING
    selector.prepare()
    return selector
