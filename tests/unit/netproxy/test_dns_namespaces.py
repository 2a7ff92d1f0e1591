"""Names of namespaces, as CoreDNS answers them: no records below one that exists, no name below another."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kube.api import core_v1, meta_v1
from kube.client import Response
from kube.errors import StatusError
from netproxy.dns import wire
from netproxy.dns.namespaces import Namespaces
from netproxy.dns.zone import Zone
from tests.support.clock import FakeClock, settle
from tests.support.memory_api import MemoryAPI
from tests.unit.netproxy.test_dns import CLUSTER, DOMAIN, Directory


class Knowing(Directory):
    """Knows which namespaces there are, or (None) does not."""

    def __init__(self, known: set[str] | None) -> None:
        super().__init__(*CLUSTER.services.values())
        self.known = known

    def has_namespace(self, namespace: str) -> bool | None:
        if self.known is not None:
            return namespace in self.known
        return super().has_namespace(namespace)


@pytest.mark.parametrize(
    ("known", "pods", "name", "rcode"),
    [
        ({"default", "empty"}, "insecure", "empty.svc", wire.NOERROR),
        ({"default", "empty"}, "insecure", "other.svc", wire.NXDOMAIN),
        ({"default", "empty"}, "insecure", "nobody.empty.svc", wire.NXDOMAIN),
        ({"default", "empty"}, "insecure", "empty.pod", wire.NOERROR),
        ({"default", "empty"}, "insecure", "other.pod", wire.NXDOMAIN),
        ({"default", "empty"}, "insecure", "10-0-0-1.other.pod", wire.NXDOMAIN),
        ({"default", "empty"}, "insecure", "10-0-0-1.empty.pod", wire.NOERROR),
        ({"default", "empty"}, "verified", "empty.pod", wire.NOERROR),
        (None, "insecure", "default.svc", wire.NOERROR),
        (None, "insecure", "empty.svc", wire.NXDOMAIN),
        (None, "insecure", "10-0-0-1.empty.pod", wire.NOERROR),
        (None, "verified", "empty.pod", wire.NXDOMAIN),
        (None, "verified", "10-244-1-2.default.pod", wire.NOERROR),
    ],
)
def test_a_name_below_a_namespace(known: set[str] | None, pods: str, name: str, rcode: int) -> None:
    answer = Zone(Knowing(known), DOMAIN, pods=pods).answer(f"{name}.{DOMAIN}", wire.A)
    assert answer is not None and answer.rcode == rcode
    assert answer.answers or answer.authority, "where there is no record, the SOA says for how long"


async def test_namespaces_are_followed_where_they_may_be_listed() -> None:
    api, changes = MemoryAPI(), []
    api.put(core_v1.Namespace(metadata=meta_v1.ObjectMeta(name="a")))
    found = Namespaces(api.client(), FakeClock())
    found.subscribe(lambda: changes.append(1))
    assert found.known("a") is None
    task = asyncio.create_task(found.run())
    await settle(50)
    assert (found.known("a"), found.known("b"), len(changes)) == (True, False, 1)
    api.put(core_v1.Namespace(metadata=meta_v1.ObjectMeta(name="b")))
    await settle(50)
    assert found.known("b") and len(changes) == 2
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


class Refusing(MemoryAPI):
    """Refuses every list and watch until `allowed`."""

    def __init__(self) -> None:
        super().__init__()
        self.allowed = False

    async def request(self, *arguments: Any, **options: Any) -> Response:
        if not self.allowed:
            raise StatusError(403, "Forbidden", 'namespaces is forbidden: User "p" cannot list resource "namespaces"')
        return await super().request(*arguments, **options)


async def test_namespaces_are_followed_once_it_is_allowed(caplog: pytest.LogCaptureFixture) -> None:
    api, clock = Refusing(), FakeClock()
    api.put(core_v1.Namespace(metadata=meta_v1.ObjectMeta(name="a")))
    found = Namespaces(api.client(), clock)
    task = asyncio.create_task(found.run())
    await settle(50)
    await clock.advance(120)
    assert found.known("a") is None, "it is not known which there are"
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.endswith("the ClusterRole wherry:network-policy in docs/install.md grants it")
    api.allowed = True
    await clock.advance(40)
    await settle(50)
    assert (found.known("a"), found.known("b")) == (True, False)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
