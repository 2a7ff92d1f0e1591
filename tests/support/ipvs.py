"""Virtual servers, sets and addresses in memory, refusing what the kernel refuses; and packets through them."""

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from netproxy.errors import WriteError
from netproxy.ipset import SETS
from netproxy.ipvs.kernel import Entries, Table
from netproxy.ipvs.state import Server, ServerConfig
from tests.support.packet_tracer import ACCEPT, DROP, REJECT, Host, Outcome, Packet, RuleTracer, _State

PROTOCOLS = {"-t": "tcp", "-u": "udp", "--sctp-service": "sctp"}


class MemoryKernel:
    """Applies the texts for ipvsadm, ipset and ip."""

    def __init__(self, node_addresses: tuple[str, ...] = ("192.168.0.1",)) -> None:
        self.table, self.held, self.bound = Table(), set[tuple[str, str]](), set[str]()
        self.nodes, self.sets = set(node_addresses), set[str]()
        self.changes: list[str] = []

    async def prepare(self) -> None:
        return None

    async def servers(self) -> Table:
        return Table(dict(self.table.servers), dict(self.table.draining))

    async def entries(self) -> Entries:
        return set(self.held)

    async def addresses(self) -> set[str]:
        return set(self.bound)

    async def node_addresses(self) -> set[str]:
        return set(self.nodes)

    async def change_servers(self, text: str) -> None:
        for line in text.splitlines():
            self.changes.append(line)
            self._server(line.split())

    def _server(self, words: list[str]) -> None:
        verb, protocol, address, *rest = words
        ip, _, port = address.rpartition(":")
        server = Server(PROTOCOLS[protocol], ip.strip("[]"), int(port))
        options = dict(zip(rest[::2], rest[1::2], strict=False)) if verb in "-A-E" else {}
        known = self.table.servers.get(server)
        if (known is None) != (verb == "-A"):
            raise WriteError(f"ipvsadm: {' '.join(words)}: {'no such' if known is None else 'known'} service")
        if verb in ("-A", "-E"):
            endpoints = known.endpoints if known else frozenset()
            self.table.servers[server] = ServerConfig(options["-s"], int(options.get("-p", 0)), endpoints)
        elif verb == "-D":
            del self.table.servers[server]
            self.table.draining = {key: value for key, value in self.table.draining.items() if key[0] != server}
        else:
            assert known is not None
            self._endpoint(server, known, verb, rest[1], " ".join(rest[2:]))

    def _endpoint(self, server: Server, known: ServerConfig, verb: str, endpoint: str, options: str) -> None:
        there = endpoint in known.endpoints or (server, endpoint) in self.table.draining
        if there != (verb != "-a"):
            raise WriteError(f"ipvsadm: {verb} {server} {endpoint}: destination {'exists' if there else 'missing'}")
        self.table.draining.pop((server, endpoint), None)
        endpoints = known.endpoints - {endpoint}
        if verb != "-d" and options.endswith("-w 1"):
            endpoints |= {endpoint}
        elif verb != "-d":
            self.table.draining[server, endpoint] = 1
        self.table.servers[server] = replace(known, endpoints=endpoints)

    async def change_sets(self, text: str) -> None:
        for line in text.splitlines():
            verb, name, rest, *_ = line.split()
            if verb == "create":
                self.sets.add(name)
            elif name not in self.sets:
                raise WriteError(f"ipset: no set {name}")
            elif verb == "add":
                self.held.add((name, rest))
            else:
                self.held.remove((name, rest))

    async def change_addresses(self, come: set[str], gone: set[str]) -> None:
        self.bound = (self.bound | come) - gone

    async def cleanup(self) -> None:
        self.__init__(tuple(self.nodes))  # type: ignore[misc]


@dataclass
class IPVSTracer(RuleTracer):
    """Follows packets through the fixed chains, with virtual servers where they stand in the kernel's way of a packet."""

    kernel: MemoryKernel = field(default_factory=MemoryKernel)

    def in_set(self, name: str, how: str, packet: Packet) -> bool:
        assert name in self.kernel.sets and name in SETS, name
        if SETS[name] == "bitmap:port":
            return (name, str(packet.port)) in self.kernel.held
        words = {"dst": packet.destination, "src": packet.source}
        first, *others = how.split(",")
        wanted = [words[first]]
        if others:
            wanted.append(f"{packet.protocol}:{packet.port}")
        for held_name, entry in self.kernel.held:
            parts = entry.split(",")
            if held_name == name and parts[: len(wanted)] == wanted:
                if len(others) < 2 or ipaddress.ip_address(words[others[1]]) in ipaddress.ip_network(parts[2]):
                    return True
        return False

    def trace(self, packet: Packet) -> Outcome:
        bound = frozenset(self.kernel.bound)
        self.host = Host(self.host.addresses | bound, self.host.remembered)
        return super().trace(packet)

    def _walk(self, packet: Packet) -> Iterator[_State]:
        local_origin = self.host.is_local(packet.source)
        start = _State(packet, local_origin=local_origin)
        server = self.kernel.table.servers.get(Server(packet.protocol, packet.destination, packet.port))
        for state in self._hook("nat", "OUTPUT" if local_origin else "PREROUTING", start):
            hooks = ["OUTPUT"] if local_origin else []
            to_host = self.host.is_local(packet.destination)
            hooks += ["INPUT"] if to_host else ([] if local_origin else ["FORWARD"])
            ends = [replace(state, end="")]
            for hook in hooks:
                ends = [after for each in ends for after in self._filtered(hook, each)]
            for after in ends:
                if after.end in (DROP, REJECT):
                    yield after
                elif server is None or not to_host:
                    yield from self._hook("nat", "POSTROUTING", replace(after, end=""))
                elif not server.endpoints:
                    yield replace(after, end=REJECT)
                else:
                    for endpoint in server.endpoints:
                        ip, port = endpoint.rsplit(":", 1)
                        moved = replace(packet, destination=ip, port=int(port))
                        yield from self._hook(
                            "nat", "POSTROUTING", replace(after, packet=moved, translated=True, end="")
                        )

    def _filtered(self, hook: str, state: _State) -> Iterator[_State]:
        if state.end in (DROP, REJECT):
            yield state
        else:
            yield from self._hook("filter", hook, state)


__all__ = ["ACCEPT", "IPVSTracer", "MemoryKernel"]
