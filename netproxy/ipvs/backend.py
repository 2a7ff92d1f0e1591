"""Backend of the IPVS mode: deltas of virtual servers, sets and addresses, beside fixed chains.

The order of a change keeps packets from falling between two states: entries of sets first, then virtual servers, then the
addresses that lead packets to them; on the way out the other way round. Virtual servers are compared with
the kernel's at each check, which costs one small file; sets and addresses each period, for that takes two processes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace

from kube.clock import SYSTEM, Clock
from netproxy import large_changes, metrics
from netproxy.config import IPVSConfig
from netproxy.ipset import create_sets, set_commands
from netproxy.ipvs import commands, state
from netproxy.ipvs.desired_state import DesiredState
from netproxy.ipvs.kernel import Kernel
from netproxy.ipvs.state import PlanSettings, State
from netproxy.model import ServicePort
from netproxy.reconciler import Reconciler
from netproxy.service_limits import VIRTUAL_SERVERS, ModeCost
from netproxy.settings import FixedChainSettings, RuleSettings
from netproxy.xtables.ipvs_chains import IPVS, with_rules
from netproxy.xtables.reconciler import ChainReconciler
from netproxy.xtables.shadow import Shadow
from netproxy.xtables.writer import Writer

log = logging.getLogger(__name__)

Servers = Mapping[state.Server, state.ServerConfig]

DRAIN_TIMEOUT = 900.0
"""Seconds that an endpoint which is gone may keep its connections."""


class IPVSBackend(Reconciler[tuple[State, State]]):
    """One IP family's virtual servers, sets, addresses and chains."""

    def __init__(
        self,
        kernel: Kernel,
        writer: Writer,
        rules: RuleSettings,
        settings: FixedChainSettings,
        *,
        config: IPVSConfig = IPVSConfig(),  # noqa: B008 - frozen
        period: float = 30,
        clock: Clock = SYSTEM,
    ) -> None:
        super().__init__(rules.family, metrics.PARTIAL_RESTORE_FAILURES, clock)
        self._kernel, self._rules, self._static = kernel, rules, settings
        # Upstream has mh hash the client's port too.
        flags = config.scheduler_flags or (("mh-port",) if config.scheduler == "mh" else ())
        self._settings = PlanSettings(rules.family, config.scheduler, flags)
        self._excluded = [each for each in state.networks(config.exclude_cidrs) if each.version == rules.family]
        self._chains = ChainReconciler(writer, Shadow(with_rules(settings, rules), IPVS), clock, period)
        self._period, self._compared_at = period, float("-inf")
        self._ports: dict[str, tuple[ServicePort, ...]] = {}
        self._desired = DesiredState()
        self._writing = asyncio.Lock()
        """Protects the desired state and the kernel: checks run beside changes of Services."""
        self._being_written: set[state.Server] = set()
        """Virtual servers that are ours, wherever they are: a write of them is under way, or failed."""
        self._draining_since: dict[tuple[state.Server, str], float] = {}

    @property
    def cost(self) -> ModeCost:
        return VIRTUAL_SERVERS

    @property
    def verify_needs_lock(self) -> bool:
        return False  # its chains are fixed, and what is compared besides is read in one go

    async def start(self, services: Mapping[str, tuple[ServicePort, ...]]) -> None:
        """Write only what differs from what the kernel holds, so that a restart causes no gap."""
        async with self._writing:
            await self._start(services)

    async def _start(self, services: Mapping[str, tuple[ServicePort, ...]]) -> None:
        await self._kernel.prepare()
        await self._kernel.change_sets(create_sets(self.family))
        self._settings = await self._with_node_addresses()
        self._ports = {key: ports for key, ports in services.items() if ports}
        self._desired = DesiredState()
        await self._plan_changes({}, self._ports)
        actual = await self._actual()
        actual.servers = commands.without_scheduler(actual.servers)
        await self._change(actual, self._desired.total, first=self._chains.take_over)
        self._compared_at = self._clock.monotonic()

    async def apply(self, services: Mapping[str, tuple[ServicePort, ...]]) -> None:
        """Bring the Services named to their new desired state; WriteError where the kernel refuses it.

        WriteTimeout where that takes too long: the next change compares everything, for part of it may be written.
        """
        async with self._writing:
            before = {key: self._ports.pop(key, ()) for key in services}
            self._ports.update({key: ports for key, ports in services.items() if ports})
            await self.write(await self._plan_changes(before, services))

    async def _apply(self, delta: tuple[State, State]) -> None:
        await self._change(*delta)

    async def take_over(self) -> None:
        await self._change(await self._actual(), self._desired.total)
        self._needs_comparison = False

    async def _plan_changes(
        self, before: Mapping[str, tuple[ServicePort, ...]], services: Mapping[str, tuple[ServicePort, ...]]
    ) -> tuple[State, State]:
        """Plan Services, which were as `before`; return what was wanted and what is now, of all that they touch."""
        settings, desired = self._settings, self._desired
        return await large_changes.compute(
            before, services, lambda: desired.change({key: state.plan(services[key], settings) for key in services})
        )

    async def _change(self, before: State, after: State, first: Callable[[], Awaitable[None]] | None = None) -> None:
        after = State(dict(after.servers), set(after.entries), set(after.addresses))  # a thread may read it
        size = before.size + after.size
        self._being_written.update(after.servers)
        entries, flags = before.entries | after.entries, self._settings.scheduler_flags

        async def change_sets(old: set[tuple[str, str]], new: set[tuple[str, str]]) -> None:
            text = await large_changes.compute_sized(size, lambda: set_commands(old, new, self.family))
            if text:
                await self._kernel.change_sets(text)

        async def change_servers(
            old: Servers, new: Servers, draining: Collection[tuple[state.Server, str]] = ()
        ) -> None:
            text = await large_changes.compute_sized(size, lambda: commands.server_commands(old, new, draining, flags))
            if text:
                await self._kernel.change_servers(text)

        await change_sets(before.entries, entries)
        if first is not None:
            await first()
        gains = state.gains_endpoints(before.servers, after.servers)
        draining = (await self._kernel.servers()).draining if gains else ()
        servers = {**before.servers, **after.servers}
        await change_servers(before.servers, servers, draining)
        come, gone = after.addresses - before.addresses, before.addresses - after.addresses
        if come or gone:
            await self._kernel.change_addresses(come, gone)
        await change_servers(servers, after.servers)
        await change_sets(entries, after.entries)
        self._being_written.clear()

    async def change_fixed_chains(self, settings: FixedChainSettings) -> None:
        """Change the settings of the fixed chains, and the addresses of node ports."""
        self._static = settings
        await self._chains.change_fixed_chains(with_rules(settings, self._rules))
        await self._follow_node_addresses()

    async def set_local_cidrs(self, cidrs: tuple[str, ...], services: Mapping[str, tuple[ServicePort, ...]]) -> None:
        """Change the ranges of pods, which masquerading depends on."""
        if cidrs != self._rules.local_cidrs:
            self._rules = replace(self._rules, local_cidrs=cidrs)
            await self._chains.change_fixed_chains(with_rules(self._static, self._rules))

    async def verify(self) -> bool:
        """Repair what others changed, remove endpoints that have ended; return whether anything had to be repaired."""
        repaired = await self._chains.verify()
        await self._follow_node_addresses()
        async with self._writing:
            table = await self._kernel.servers()
            await self._remove_drained(table.draining)
            wanted, found = self._desired.total.servers, table.servers
            whole = await asyncio.to_thread(lambda: {server: found.get(server) for server in wanted} == wanted)
        if whole and self._clock.monotonic() - self._compared_at < self._period:
            return repaired
        self._compared_at = self._clock.monotonic()
        return await self._repair() or repaired

    async def _repair(self) -> bool:
        """Compare everything; return whether anything had to be repaired."""
        if await self._actual() == self._desired.total:
            return False
        async with self._writing:
            actual = await self._actual()  # the difference may have been a change that was under way
            if actual == self._desired.total:
                return False
            await self._change(actual, self._desired.total)
        metrics.REPAIRS.inc()
        log.warning("repaired virtual servers, sets or addresses that others had changed")
        return True

    async def cleanup(self) -> None:
        """Remove everything of ours: rules first, for they hold the sets."""
        await self._chains.cleanup()
        await self._kernel.cleanup()

    async def _remove_drained(self, draining: Mapping[tuple[state.Server, str], int]) -> None:
        """Remove endpoints of weight 0 whose connections have ended, or that drained for `DRAIN_TIMEOUT`."""
        now = self._clock.monotonic()
        self._draining_since = {key: self._draining_since.get(key, now) for key in draining}
        lines = [
            commands.remove_endpoint(*key)
            for key, connections in draining.items()
            if key[0] in self._desired.total.servers
            and (not connections or now - self._draining_since[key] >= DRAIN_TIMEOUT)
        ]
        if lines:
            await self._kernel.change_servers("".join(lines))

    async def _actual(self) -> State:
        """Return what the kernel has of what may be ours: virtual servers on our addresses and node ports.

        Also those in the Service range without an address: a proxy was killed on a Service's way out, between the two.
        """
        addresses, table = await self._kernel.addresses(), await self._kernel.servers()
        mine = addresses | self._desired.total.addresses | self._settings.own_addresses
        known = self._desired.total.servers.keys() | self._being_written
        ranges = state.networks(self._static.service_cidrs)

        def is_ours(ip: str) -> bool:
            return (ip in mine or state.within(ip, ranges)) and not state.within(ip, self._excluded)

        def ours() -> dict[state.Server, state.ServerConfig]:
            return {server: each for server, each in table.servers.items() if server in known or is_ours(server.ip)}

        return State(await asyncio.to_thread(ours), await self._kernel.entries(), addresses)

    async def _with_node_addresses(self) -> state.PlanSettings:
        found = await self._kernel.node_addresses()
        ranges = state.networks(self._static.node_port_cidrs)
        serving = tuple(sorted(ip for ip in found if not ranges or state.within(ip, ranges)))
        return replace(self._settings, node_addresses=serving, own_addresses=frozenset(found))

    async def _follow_node_addresses(self) -> None:
        """Serve node ports on addresses that the node has gained, and no longer on those it has lost."""
        settings = await self._with_node_addresses()
        if settings != self._settings:
            async with self._writing:
                self._settings = settings
                await self.write(await self._plan_changes(self._ports, self._ports))
