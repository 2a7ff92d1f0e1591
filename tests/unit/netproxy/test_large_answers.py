"""Cluster DNS where a Service has more records than an answer can hold."""

import socket

import dns.flags
import dns.message
import pytest

from netproxy.dns import server, wire
from netproxy.dns.server import DNSServer
from netproxy.dns.zone import Zone
from tests.support.services import service, slice_of
from tests.unit.netproxy.test_dns import DOMAIN, Directory, responder


def many_records() -> Directory:
    ips = [f"10.244.1.{last}" for last in range(1, 51)]
    ports = {f"p{number}": number for number in range(1, 101)}
    return Directory(service("db", "None"), slice_of("db", *ips, ports=ports))


def test_no_more_srv_records_are_made_than_an_answer_can_hold() -> None:
    answer = Zone(many_records(), DOMAIN).answer(f"db.default.svc.{DOMAIN}", wire.SRV)
    assert answer is not None
    assert len(answer.answers) < 5000
    sizes = [record.size for record in answer.answers]
    assert sizes == [len(record.encode()) for record in answer.answers]
    assert sum(sizes[:-1]) <= 65535 < sum(sizes)  # the last shows that not all fit


async def test_an_answer_of_too_many_srv_records_is_full_and_marked_as_truncated() -> None:
    query = dns.message.make_query(f"db.default.svc.{DOMAIN}", "SRV")
    reply = await responder(many_records()).slow(query.to_wire(), tcp=True)
    assert len(reply) > 65000
    assert dns.message.from_wire(reply).flags & dns.flags.TC


def test_the_loop_gets_its_turn_once_the_time_of_a_batch_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "BATCH_SECONDS", 0)
    question = dns.message.make_query(f"db.default.svc.{DOMAIN}", "A").to_wire()
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client,
    ):
        udp.setblocking(False)
        udp.bind(("127.0.0.1", 0))
        for _ in range(2):
            client.sendto(question, udp.getsockname())
        DNSServer(responder(many_records()), [])._readable(udp)
        assert udp.recv(4096) == question  # the second waits for the next turn
