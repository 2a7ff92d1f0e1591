"""The IPVS mode as a backend: deltas of virtual servers, sets and addresses; the fixed chains as in the iptables mode.

The order of a change keeps packets from falling between two states: entries of sets first, then virtual servers, then the
addresses that lead packets to them; on the way out the other way round. Virtual servers are compared with
the kernel's at each look, which costs one small file; sets and addresses each period, for that takes two processes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace

from kube.clock import SYSTEM, Clock
from netproxy import large_changes, metrics
from netproxy.config import IPVSConfig
from netproxy.errors import WriteError, WriteTimeout
from netproxy.iptables.settings import RuleSettings
from netproxy.iptables.static import StaticSettings
from netproxy.iptables.sync import IPTablesBackend
from netproxy.iptables.writer import Writer
from netproxy.ipvs import commands, state
from netproxy.ipvs.chains import IPVS, with_rules
from netproxy.ipvs.kernel import Kernel
from netproxy.ipvs.state import Settings, State
from netproxy.ipvs.wanted import Wanted
from netproxy.model import ServicePort
from netproxy.service_limits import VIRTUAL_SERVERS, ModeCost

log = logging.getLogger(__name__)

Servers = Mapping[state.Server, state.Behaviour]

ENDING = 900.0
"""Seconds that an endpoint which is gone may keep its connections."""


class IPVSBackend:
    """One IP family's virtual servers, sets, addresses and chains."""

    def __init__(
        self,
        kernel: Kernel,
        writer: Writer,
        rules: RuleSettings,
        settings: StaticSettings,
        *,
        config: IPVSConfig = IPVSConfig(),  # noqa: B008 - frozen
        period: float = 30,
        clock: Clock = SYSTEM,
    ) -> None:
        self._kernel, self._rules, self._static, self._clock = kernel, rules, settings, clock
        # Upstream has mh hash the client's port too.
        flags = config.scheduler_flags or (("mh-port",) if config.scheduler == "mh" else ())
        self._settings = Settings(rules.family, config.scheduler, flags)
        self._excluded = [each for each in state.networks(config.exclude_cidrs) if each.version == rules.family]
        self._chains = IPTablesBackend(
            writer, rules, with_rules(settings, rules), period=period, clock=clock, layout=IPVS
        )
        self._period, self._compared_at = period, float("-inf")
        self._ports: dict[str, tuple[ServicePort, ...]] = {}
        self._wanted = Wanted()
        self._writing = asyncio.Lock()
        """Held by whoever changes what is wanted or the kernel: looks run beside changes of Services."""
        self._torn = False
        """Whether a write failed, so that the kernel does not hold what deltas are made from."""
        self._tried: set[state.Server] = set()
        """Virtual servers that are ours, wherever they are: a write of them is under way, or failed."""
        self._ending_since: dict[tuple[state.Server, str], float] = {}

    @property
    def family(self) -> int:
        return self._rules.family

    @property
    def cost(self) -> ModeCost:
        return VIRTUAL_SERVERS

    @property
    def starving(self) -> bool:
        return False  # its chains are fixed, and what is compared besides is read in one go

    async def start(self, services: Mapping[str, tuple[ServicePort, ...]]) -> None:
        """Take over whatever the kernel holds: what is right stays, so a restart causes no gap."""
        async with self._writing:
            await self._start(services)

    async def _start(self, services: Mapping[str, tuple[ServicePort, ...]]) -> None:
        await self._kernel.prepare()
        await self._kernel.change_sets(commands.create_sets(self.family))
        self._settings = await self._with_node_addresses()
        self._ports = {key: ports for key, ports in services.items() if ports}
        self._wanted = Wanted()
        await self._take_in(self._ports)
        held = await self._held()
        held.servers = commands.without_flags(held.servers)
        await self._change(held, self._wanted.total, first=lambda: self._chains.start({}))
        self._compared_at = self._clock.monotonic()

    async def apply(self, services: Mapping[str, tuple[ServicePort, ...]]) -> None:
        """Bring the Services named to their new desired state; WriteError where the kernel refuses it.

        WriteTimeout where that takes too long: the next change compares everything, for part of it may be written.
        """
        async with self._writing:
            for key, ports in services.items():
                if ports:
                    self._ports[key] = ports
                else:
                    self._ports.pop(key, None)
            await self._advance(services)

    async def _advance(self, services: Mapping[str, tuple[ServicePort, ...]]) -> None:
        before, after = await self._take_in(services)
        started = self._clock.monotonic()
        try:
            await self._change(
                await self._held() if self._torn else before, self._wanted.total if self._torn else after
            )
        except WriteTimeout:
            self._torn = True  # a comparison would take as long again
            metrics.PARTIAL_RESTORE_FAILURES.labels(metrics.family_label(self.family)).inc()
            raise
        except WriteError as error:
            if self._torn:
                raise
            metrics.PARTIAL_RESTORE_FAILURES.labels(metrics.family_label(self.family)).inc()
            log.warning("a change was refused, comparing everything: %s", error)
            self._torn = True
            await self._change(await self._held(), self._wanted.total)
        self._torn = False
        metrics.PARTIAL_SYNC.labels(metrics.family_label(self.family)).observe(self._clock.monotonic() - started)

    async def _take_in(self, services: Mapping[str, tuple[ServicePort, ...]]) -> tuple[State, State]:
        """Plan Services; return what was wanted and what is now, of all that they touch."""
        settings = self._settings
        plans = await large_changes.made(
            services, lambda: {key: state.plan(services[key], settings) for key in services}
        )
        return self._wanted.change(plans)

    async def _change(self, before: State, after: State, first: Callable[[], Awaitable[None]] | None = None) -> None:
        after = State(dict(after.servers), set(after.entries), set(after.addresses))  # a thread may read it
        size = before.size + after.size
        self._tried.update(after.servers)
        entries, flags = before.entries | after.entries, self._settings.scheduler_flags

        async def change_sets(old: set[tuple[str, str]], new: set[tuple[str, str]]) -> None:
            text = await large_changes.made_of(size, lambda: commands.set_commands(old, new, self.family))
            if text:
                await self._kernel.change_sets(text)

        async def change_servers(old: Servers, new: Servers, ending: Collection[tuple[state.Server, str]] = ()) -> None:
            text = await large_changes.made_of(size, lambda: commands.server_commands(old, new, ending, flags))
            if text:
                await self._kernel.change_servers(text)

        await change_sets(before.entries, entries)
        if first is not None:
            await first()
        ending = self._kernel.servers().ending if state.gains_endpoints(before.servers, after.servers) else ()
        servers = {**before.servers, **after.servers}
        await change_servers(before.servers, servers, ending)
        come, gone = after.addresses - before.addresses, before.addresses - after.addresses
        if come or gone:
            await self._kernel.change_addresses(come, gone)
        await change_servers(servers, after.servers)
        await change_sets(entries, after.entries)
        self._tried.clear()

    async def set_static(self, settings: StaticSettings) -> None:
        """Change what the fixed chains are made from, and where node ports are served."""
        self._static = settings
        await self._chains.set_static(with_rules(settings, self._rules))
        await self._follow_node_addresses()

    async def set_local_cidrs(self, cidrs: tuple[str, ...], services: Mapping[str, tuple[ServicePort, ...]]) -> None:
        """Change where pods live, which masquerading depends on."""
        if cidrs != self._rules.local_cidrs:
            self._rules = replace(self._rules, local_cidrs=cidrs)
            await self._chains.set_static(with_rules(self._static, self._rules))

    async def verify(self) -> bool:
        """Repair what others changed, remove endpoints that have ended; return whether anything had to be repaired."""
        repaired = await self._chains.verify()
        await self._follow_node_addresses()
        async with self._writing:
            table = self._kernel.servers()
            await self._retire(table.ending)
            wanted = self._wanted.total.servers
            whole = {server: table.servers.get(server) for server in wanted} == wanted
        if whole and self._clock.monotonic() - self._compared_at < self._period:
            return repaired
        self._compared_at = self._clock.monotonic()
        return await self._repair() or repaired

    async def _repair(self) -> bool:
        """Compare everything; return whether anything had to be repaired."""
        if await self._held() == self._wanted.total:
            return False
        async with self._writing:
            held = await self._held()  # the difference may have been a change that was under way
            if held == self._wanted.total:
                return False
            await self._change(held, self._wanted.total)
        metrics.REPAIRS.inc()
        log.warning("repaired virtual servers, sets or addresses that others had changed")
        return True

    async def cleanup(self) -> None:
        """Remove everything of ours: rules first, for they hold the sets."""
        await self._chains.cleanup()
        await self._kernel.cleanup()

    async def _retire(self, ending: Mapping[tuple[state.Server, str], int]) -> None:
        """Remove endpoints of weight 0 whose connections have ended, or that had long enough."""
        now = self._clock.monotonic()
        self._ending_since = {key: self._ending_since.get(key, now) for key in ending}
        lines = [
            commands.retire(*key)
            for key, connections in ending.items()
            if key[0] in self._wanted.total.servers and (not connections or now - self._ending_since[key] >= ENDING)
        ]
        if lines:
            await self._kernel.change_servers("".join(lines))

    async def _held(self) -> State:
        """Return what the kernel holds of what may be ours: virtual servers on our addresses and node ports.

        Also those in the Service range without an address: a proxy was killed on a Service's way out, between the two.
        """
        addresses, table = await self._kernel.addresses(), self._kernel.servers()
        mine = addresses | self._wanted.total.addresses | self._settings.own_addresses
        known = self._wanted.total.servers.keys() | self._tried
        ranges = state.networks(self._static.service_cidrs)

        def is_ours(ip: str) -> bool:
            return (ip in mine or state.within(ip, ranges)) and not state.within(ip, self._excluded)

        servers = {
            server: behaviour for server, behaviour in table.servers.items() if server in known or is_ours(server.ip)
        }
        return State(servers, await self._kernel.entries(), addresses)

    async def _with_node_addresses(self) -> state.Settings:
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
                await self._advance(self._ports)
