"""Backends of every mode whose kernel refuses the rules of some Services, or takes too long for them."""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from netproxy.backend import Backend
from netproxy.errors import WriteError, WriteTimeout
from netproxy.iptables.backend import IPTablesBackend
from netproxy.ipvs.backend import IPVSBackend
from netproxy.model import ServicePort, plan_service
from netproxy.nftables.backend import NFTablesBackend
from tests.support.clock import FakeClock
from tests.support.iptables_in_memory import RecordingWriter
from tests.support.ipvs import MemoryKernel
from tests.support.nft_in_memory import RecordingWriter as NftRecordingWriter
from tests.support.packet_cases import FIXED, RULES
from tests.support.services import service, slice_of

COUNT = 9


class Refusing:
    """Refuses texts that name an address, as long as it is in `addresses`."""

    def __init__(self) -> None:
        self.addresses: set[str] = set()
        self.everything = False
        self.attempts = self.reads = self.refusals = 0
        self.error: type[WriteError] = WriteError

    def check(self, text: str) -> None:
        self.attempts += 1
        if self.everything:
            raise WriteError("refused")
        for address in self.addresses:
            if f"{address} " in text or f"{address}:" in text:
                self.refusals += 1
                raise self.error(f"refused: {address}")

    def check_lines(self, text: str) -> None:
        """Refuse lines; what removes something is taken."""
        for line in text.splitlines():
            if self.everything or not line.startswith(("del", "-D", "-d")):
                self.check(line)


class Tables(RecordingWriter):
    def __init__(self, refusing: Refusing) -> None:
        super().__init__()
        self.refusing = refusing

    async def apply(self, text: str) -> None:
        self.refusing.check(text)
        await super().apply(text)

    async def read(self) -> Any:
        self.refusing.reads += 1
        return await super().read()


class Table(NftRecordingWriter):
    def __init__(self, refusing: Refusing) -> None:
        super().__init__()
        self.refusing = refusing

    async def apply(self, text: str) -> None:
        self.refusing.check(re.sub("delete element .*", "", text))
        await super().apply(text)

    async def read(self) -> Any:
        self.refusing.reads += 1
        return await super().read()


class Kernel(MemoryKernel):
    """Takes the lines before one that it refuses, as ipset and ipvsadm do."""

    def __init__(self, refusing: Refusing) -> None:
        super().__init__()
        self.refusing = refusing

    async def change_sets(self, text: str) -> None:
        for line in text.splitlines():
            self.refusing.check_lines(line)
            await super().change_sets(line)

    async def change_servers(self, text: str) -> None:
        for line in text.splitlines():
            self.refusing.check_lines(line)
            await super().change_servers(line)


class Site(NamedTuple):
    backend: Backend
    refusing: Refusing
    held: Callable[[], Any]


def iptables(clock: FakeClock) -> Site:
    refusing = Refusing()
    writer = Tables(refusing)

    def held() -> Any:
        return {
            table: {name: sorted(rules) for name, rules in chains.items()} for table, chains in writer.tables.items()
        }

    return Site(IPTablesBackend(writer, RULES, FIXED, clock=clock), refusing, held)


def nftables(clock: FakeClock) -> Site:
    refusing = Refusing()
    writer = Table(refusing)

    def held() -> Any:
        return writer.contents.elements, writer.contents.rules, sorted(writer.contents.sets)

    return Site(NFTablesBackend(writer, RULES, FIXED, clock=clock), refusing, held)


def ipvs(clock: FakeClock) -> Site:
    refusing = Refusing()
    kernel = Kernel(refusing)

    def held() -> Any:
        return kernel.table.servers, kernel.held, kernel.bound

    return Site(IPVSBackend(kernel, RecordingWriter(), RULES, FIXED, clock=clock), refusing, held)


SITES = [iptables, nftables, ipvs]
Make = Callable[[FakeClock], Site]


def address(number: int) -> str:
    """Return the endpoint that the kernel refuses."""
    return f"10.244.9.{number + 1}"


def planned(number: int, *endpoints: str) -> tuple[ServicePort, ...]:
    name = f"s{number}"
    return plan_service(service(name, f"10.96.5.{number + 1}"), [slice_of(name, *(endpoints or (address(number),)))])


def every(*endpoints: str) -> dict[str, tuple[ServicePort, ...]]:
    return {f"default/s{number}": planned(number, *endpoints) for number in range(COUNT)}


async def fresh(make: Make, services: Mapping[str, tuple[ServicePort, ...]]) -> Any:
    site = make(FakeClock())
    await site.backend.start(services)
    return site.held()


def without(refused: set[int]) -> dict[str, tuple[ServicePort, ...]]:
    return {key: ports for key, ports in every().items() if int(key[-1]) not in refused}


def late(*numbers: int) -> Site:
    """Return tables in which the rules of some Services take too long to write."""
    site = iptables(FakeClock())
    site.refusing.error, site.refusing.addresses = WriteTimeout, {address(number) for number in numbers}
    return site
