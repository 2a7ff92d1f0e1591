"""The forwarder of cluster DNS: resolvers that fail, cached answers, and answers to other queries."""

import struct
from pathlib import Path

import dns.flags
import dns.message
import dns.name
import dns.opcode
import dns.rcode
import dns.rdatatype
import dns.rrset
import pytest

from netproxy.dns import forwarder, wire
from netproxy.dns.forwarder import Forwarder, ResolvConf
from tests.support.clock import FakeClock

from .test_dns import responder, texts


# -- forwarding -------------------------------------------------------------------------------------------------------
def upstream_answer(query: bytes, address: str = "192.0.2.1", ttl: int = 60) -> bytes:
    parsed = dns.message.from_wire(query)
    answer = dns.message.make_response(parsed)
    answer.answer.append(dns.rrset.from_text(parsed.question[0].name, ttl, "IN", "A", address))  # type: ignore[attr-defined]
    return answer.to_wire()


class FakeExchange:
    """Stands for the network under the forwarder: answers or fails per resolver, and counts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **behaviours: object) -> None:
        self.received: list[str] = []
        self.behaviours = {host.replace("_", "."): what for host, what in behaviours.items()}

        async def exchange(host: str, number: int, message: bytes, question: bytes) -> bytes:
            self.received.append(host)
            what = self.behaviours[host]
            if isinstance(what, Exception):
                raise what
            return upstream_answer(message)

        monkeypatch.setattr(forwarder, "_over_udp", exchange)
        monkeypatch.setattr(forwarder, "_over_tcp", exchange)


async def test_a_resolver_that_fails_is_followed_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    net = FakeExchange(monkeypatch, **{"192_0_2_53": OSError("unreachable"), "192_0_2_54": True})
    server = responder(forwarder=Forwarder(lambda: ["192.0.2.53", "192.0.2.54"], clock=FakeClock()))
    query = dns.message.make_query("example.org", "A")
    answer = dns.message.from_wire(await server.slow(query.to_wire()))
    assert answer.id == query.id
    assert texts(answer) == ["192.0.2.1"]
    assert net.received == ["192.0.2.53", "192.0.2.54"]


async def test_a_resolver_that_is_none_is_followed_by_the_next(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    FakeExchange(monkeypatch, **{"192_0_2_53": True})
    conf = tmp_path / "resolv.conf"
    conf.write_bytes(b"# \xff\nnameserver 192.0.2.52:dns\nnameserver 192.0.2.53\n")
    server = responder(forwarder=Forwarder(ResolvConf(conf).resolvers, clock=FakeClock()))
    answer = await server.slow(dns.message.make_query("example.org", "A").to_wire())
    assert texts(dns.message.from_wire(answer)) == ["192.0.2.1"]


async def test_answers_are_kept_for_their_time_and_count_it_down(monkeypatch: pytest.MonkeyPatch) -> None:
    net = FakeExchange(monkeypatch, **{"192_0_2_53": True})
    clock = FakeClock()
    server = responder(forwarder=Forwarder(lambda: ["192.0.2.53"], clock=clock))
    for _ in range(3):
        query = dns.message.make_query("example.org", "A")
        answer = dns.message.from_wire(await server.slow(query.to_wire()))
        assert answer.id == query.id
    assert len(net.received) == 1
    await clock.advance(20)
    answer = dns.message.from_wire(await server.slow(dns.message.make_query("example.org", "A").to_wire()))
    assert answer.answer[0].ttl == 40
    await clock.advance(11)
    await server.slow(dns.message.make_query("example.org", "A").to_wire())
    assert len(net.received) == 2


async def test_without_an_answer_the_client_gets_servfail(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeExchange(monkeypatch, **{"192_0_2_53": TimeoutError()})
    for resolvers in ([], ["192.0.2.53"]):
        server = responder(forwarder=Forwarder(lambda resolvers=resolvers: resolvers, clock=FakeClock()))
        answer = dns.message.from_wire(await server.slow(dns.message.make_query("example.org", "A").to_wire()))
        assert answer.rcode() == dns.rcode.SERVFAIL


async def test_an_external_name_is_followed_for_stub_resolvers(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeExchange(monkeypatch, **{"192_0_2_53": True})
    server = responder(forwarder=Forwarder(lambda: ["192.0.2.53"], clock=FakeClock()))
    query = dns.message.make_query("outside.default.svc.cluster.local", "A")
    assert server.quick(query.to_wire()) is None
    answer = dns.message.from_wire(await server.slow(query.to_wire()))
    assert texts(answer) == ["192.0.2.1", "example.org."]


@pytest.mark.parametrize("wrong", ["id", "question", "not an answer"])
def test_an_answer_that_is_not_to_our_question_does_not_count(wrong: str) -> None:
    query = dns.message.make_query("example.org", "A").to_wire()
    good = upstream_answer(query)
    parsed = wire.parse_query(query)
    assert forwarder._answers(good, query, parsed.question)
    if wrong == "id":
        forged = bytes([good[0] ^ 1]) + good[1:]
    elif wrong == "question":
        forged = query[:2] + upstream_answer(dns.message.make_query("example.com", "A").to_wire())[2:]
    else:
        forged = query
    assert not forwarder._answers(forged, query, parsed.question)


def test_a_file_that_cannot_be_read_now_is_read_again_at_the_next_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "resolv.conf"
    path.write_text("nameserver 192.0.2.1\n")
    conf = ResolvConf(path)
    assert conf.resolvers() == ["192.0.2.1"]
    path.write_text("nameserver 192.0.2.22\n")
    with monkeypatch.context() as patched:

        def failing(*_: object, **__: object) -> str:
            raise OSError(24, "Too many open files")

        patched.setattr(Path, "read_text", failing)
        assert conf.resolvers() == ["192.0.2.1"]
    assert conf.resolvers() == ["192.0.2.22"]
    path.unlink()
    assert conf.resolvers() == []


def test_resolvers_are_read_again_when_the_file_changes_and_never_ourselves(tmp_path: Path) -> None:
    path = tmp_path / "resolv.conf"
    path.write_text("# x\nnameserver 10.96.0.10\nnameserver 192.0.2.53\nsearch a b\noptions ndots:5\n")
    conf = ResolvConf(path, ("10.96.0.10",))
    assert conf.resolvers() == ["192.0.2.53"]
    (tmp_path / "new").write_text("nameserver 192.0.2.54\n")
    (tmp_path / "new").rename(path)
    assert conf.resolvers() == ["192.0.2.54"]
    path.unlink()
    assert conf.resolvers() == []


def test_ttls_are_found_behind_compressed_names() -> None:
    answer = upstream_answer(dns.message.make_query("a.example.org", "A").to_wire(), ttl=7)
    assert forwarder.lowest_ttl(answer) == 7
    assert forwarder.lowest_ttl(forwarder.age(answer, 5)) == 2
    assert forwarder.lowest_ttl(forwarder.age(answer, 50)) == 0
    assert forwarder.lowest_ttl(answer[:20]) == 0
    assert struct.unpack_from("!H", answer)[0] == struct.unpack_from("!H", forwarder.age(answer, 5))[0]
