"""Deletion of flows between addresses, in a kernel's table that holds others too."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from netproxy import conntrack, flow_table
from netproxy.conntrack import StaleFlows
from tests.support.netns import Namespace, namespaces

POD, OTHER_POD, FORMER, ELSEWHERE = "10.244.1.2", "10.244.1.3", "10.244.2.5", "10.244.2.6"
POD_6, FORMER_6, ELSEWHERE_6 = "fd00:1::2", "fd00:2::5", "fd00:2::6"
SEEN = ("--state", "ESTABLISHED", "-u", "SEEN_REPLY")
TAGS = ("--orig-vtag", "1", "--reply-vtag", "2")
REPLY = ("-r", FORMER, "-q", POD, "--reply-port-src", "53", "--reply-port-dst", "1004")
MARKED = [
    ("-p", "udp", "-s", POD, "-d", FORMER, "--sport", "1001", "--dport", "53"),
    ("-p", "udp", "-s", FORMER, "-d", POD, "--sport", "1002", "--dport", "53"),
    ("-p", "tcp", "-s", POD, "-d", FORMER, "--sport", "1003", "--dport", "80", *SEEN),
    ("-p", "udp", "-s", POD, "-d", "10.96.5.9", "--sport", "1004", "--dport", "53", *REPLY),
    ("-p", "icmp", "-s", FORMER, "-d", POD, "--icmp-type", "8", "--icmp-code", "0", "--icmp-id", "1005"),
    ("-p", "sctp", "-s", FORMER, "-d", POD, "--sport", "1006", "--dport", "9", "--state", "ESTABLISHED", *TAGS),
    ("-p", "udp", "-s", POD, "-d", FORMER, "--sport", "1007", "--dport", "53", "-w", "7"),
    ("-p", "udp", "-s", POD_6, "-d", FORMER_6, "--sport", "1008", "--dport", "53"),
    ("-p", "tcp", "-s", FORMER_6, "-d", POD_6, "--sport", "1009", "--dport", "80", *SEEN),
]
KEPT = [
    ("-p", "udp", "-s", OTHER_POD, "-d", FORMER, "--sport", "2001", "--dport", "53"),
    ("-p", "udp", "-s", POD, "-d", ELSEWHERE, "--sport", "2002", "--dport", "53"),
    ("-p", "tcp", "-s", ELSEWHERE, "-d", POD, "--sport", "2003", "--dport", "80", *SEEN),
    ("-p", "udp", "-s", POD_6, "-d", ELSEWHERE_6, "--sport", "2004", "--dport", "53"),
    ("-p", "udp", "-s", POD, "-d", POD, "--sport", "2005", "--dport", "53"),
]


@pytest.fixture
def node() -> Iterator[Namespace]:
    with namespaces(f"np-{os.getpid()}-flows") as (made,):
        # Without a rule that reads their state the kernel tracks no connections here.
        made.run("nft", "add table inet t; add chain inet t c { type filter hook input priority 0 ; }")
        made.run("nft", "add rule inet t c ct state established accept")
        yield made


def listed(node: Namespace) -> str:
    return "".join(node.run("conntrack", "-L", "-f", family) for family in ("ipv4", "ipv6"))


def delete(node: Namespace, ends: set[str], others: set[str]) -> int:
    async def run() -> int:
        return await asyncio.to_thread(flow_table.delete_between, flow_table.connect(), ends, others)

    return node.inside(run)


def test_flows_between_addresses_are_deleted_and_no_others(node: Namespace) -> None:
    for flow in (*MARKED, *KEPT):
        node.run("conntrack", "-I", "-t", "600", *flow)
    assert listed(node).count("\n") == len(MARKED) + len(KEPT)
    assert delete(node, {FORMER, FORMER_6, "10.244.9.9"}, {POD, POD_6}) == len(MARKED)
    left = listed(node)
    assert left.count("\n") == len(KEPT) and all(f"sport={number}" in left for number in range(2001, 2006)), left
    assert delete(node, {FORMER, FORMER_6}, {POD, POD_6}) == 0
    assert delete(node, set(), {POD}) == 0


def test_a_large_table_is_listed_once_for_any_number_of_addresses(node: Namespace) -> None:
    """Flows of 200 addresses among 2 000 others, which the kernel lists in many parts."""
    former = {f"10.244.3.{number}" for number in range(1, 201)}
    ends = [*sorted(former), *(f"10.245.{number >> 8}.{number & 255}" for number in range(2000))]
    flow = "-A -p udp -s {} -d {} --sport 1000 --dport 53 -t 600\n"
    node.run("conntrack", "--load-file", "-", input="".join(flow.format(POD, each) for each in ends))
    assert delete(node, former, {POD}) == len(former)
    assert listed(node).count("\n") == 2000


def test_flows_of_an_address_go_in_both_directions(node: Namespace) -> None:
    for flow in (*MARKED, *KEPT):
        node.run("conntrack", "-I", "-t", "600", *flow)

    async def run() -> int:
        return await asyncio.to_thread(flow_table.delete_of, flow_table.connect(), {POD, POD_6})

    count = node.inside(run)
    left = listed(node)
    assert count == len(MARKED) + len(KEPT) - 1 and left.count("\n") == 1 and "sport=2001" in left


def test_stale_flows_of_a_port_are_deleted_and_those_of_other_protocols_kept(node: Namespace) -> None:
    for flow in (*MARKED, *KEPT):
        node.run("conntrack", "-I", "-t", "600", *flow)
    stale = [
        StaleFlows(4, "UDP", "10.96.5.9", 53, FORMER, 53),
        StaleFlows(4, "UDP", POD, 53),
        StaleFlows(4, "UDP", ELSEWHERE, 53, "10.244.9.9", 53),
        StaleFlows(6, "UDP", "", 53),
        StaleFlows(4, "SCTP", POD, 9),
    ]

    async def run() -> None:
        await conntrack.delete_flows(stale)

    node.inside(run)
    left = listed(node)
    gone = {number for number in (*range(1001, 1010), *range(2001, 2006)) if f"sport={number}" not in left}
    # 1005 is the ICMP flow, which has no ports.
    assert gone - {1005} == {1002, 1004, 1006, 1008, 2004, 2005} and "icmp" in left, left


def test_a_list_of_one_protocol_is_filtered_by_the_kernel(node: Namespace) -> None:
    for flow in MARKED[:3]:
        node.run("conntrack", "-I", "-t", "600", *flow)
    seen: list[int] = []

    def stale(flow: flow_table.Flow) -> bool:
        seen.append(flow.protocol)
        return False

    parsed = flow_table.parse

    async def run() -> int:
        return await asyncio.to_thread(flow_table.delete_stale, flow_table.connect(), 4, 6, stale)

    def counted(body: bytes, version: int) -> flow_table.Flow:
        calls.append(version)
        return parsed(body, version)

    calls: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flow_table, "parse", counted)
        assert node.inside(run) == 0
    assert seen == [6] and len(calls) in (1, 3)  # kernels before 5.8 list all
