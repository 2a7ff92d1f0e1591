"""Writes the policy table of one IP family, without the rules of policies that make writes fail."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from kube.clock import Clock
from netproxy.errors import UnansweredError, WriteError
from netproxy.families import of_family
from netproxy.policy.backend import PolicyBackend
from netproxy.policy.failures import Failures
from netproxy.policy.policy_search import costly_policies, refused_policies
from netproxy.policy.retries import Retries
from netproxy.policy.rules import RulesetBuilder

log = logging.getLogger(__name__)
RETRY = 1.0
"""Seconds before a write that failed is retried."""


class FamilyWriter:
    """One family's backend, its rulesets, and the policies that are closed in it."""

    def __init__(self, backend: PolicyBackend, rulesets: RulesetBuilder, failures: Failures, clock: Clock) -> None:
        self.backend, self.rulesets, self._failures, self._clock = backend, rulesets, failures, clock
        self._retries = Retries(clock)

    def set_node_ranges(self, cidrs: Sequence[str]) -> None:
        """Set the ranges of addresses of this node's pods; those of the other family are ignored."""
        self.rulesets.ranges = of_family(cidrs, self.backend.family)

    async def write(self) -> bool:
        """Write what the table of policies holds now; return whether that succeeded."""
        closed = self.rulesets.closed  # `reopen` may open one during the write
        try:
            try:
                for _ in self.rulesets.prepare():
                    await asyncio.sleep(0)
                await self.backend.put(self.rulesets.build())
            except WriteError as error:
                self.backend.require_comparison()
                if not await self._close(error):
                    raise
                closed = self.rulesets.closed
                await self.backend.put(self.rulesets.build())
        except WriteError as error:
            log.error("network policies cannot be written yet: %s", error)
            self.backend.require_comparison()
            return False
        self._retries.written(closed)
        return True

    async def _close(self, error: WriteError) -> bool:
        """Close the policies because of which a write failed; return whether there are any."""
        try:
            if isinstance(error, UnansweredError):
                raise error
            found, why = await refused_policies(self.rulesets, self.backend), "the kernel refuses its rules"
        except UnansweredError:
            found, why = costly_policies(self.rulesets), "the node takes too long to write its namespace's rules"
        self.rulesets.closed |= found
        log.error("a change of network policies failed: %s", error)
        for key in found:
            if self._retries.failed(key):
                self._failures.add(key, why)
        self._failures.report()
        return bool(found)

    def reopen(self) -> bool:
        """Open the next closed policy whose back-off has passed; return whether there is one."""
        key = self._retries.next_key(self.rulesets.closed)
        self.rulesets.closed -= {key}
        return bool(key)

    def changed(self, key: str, *, gone: bool) -> None:
        """Open a closed policy that was changed or deleted, if it may be tried at once."""
        if gone:
            self._retries.forget(key)
        if self._retries.changed(key):
            self.rulesets.closed -= {key}

    async def remove(self) -> None:
        """Remove the table; try again until that succeeds."""
        self.rulesets.clear()
        while True:
            try:
                await self.backend.cleanup()
                return
            except WriteError as error:
                log.error("network policies cannot be removed yet: %s", error)
                await self._clock.sleep(RETRY)
