"""Tables read back from the kernel are parsed and compared in threads: DNS answers in the same event loop meanwhile.

Lines are counted that the event loop's thread executes while another does the work.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kube.process import Result
from netproxy import large_changes
from netproxy.ipvs import kernel as ipvs_kernel
from netproxy.ipvs.kernel import RealKernel
from netproxy.nft import writer as nft_writer
from netproxy.nft.listing import decode
from netproxy.nft.listing import parse as parse_listing
from netproxy.nft.writer import NftWriter
from netproxy.policy.parsing import parse
from netproxy.policy.pod_facts import PodFacts
from netproxy.policy.table import SLICE
from netproxy.xtables import writer as xtables_writer
from netproxy.xtables.writer import RestoreWriter
from tests.support.clock import FakeClock
from tests.support.policies import policy
from tests.unit.cost.test_proxy_products import APART, LARGE, Site, Steps, values

READERS: dict[str, tuple[Any, str, Callable[[], Awaitable[object]]]] = {
    "nft": (nft_writer, "parse", lambda: NftWriter().read()),
    "iptables": (xtables_writer, "parse_save", lambda: RestoreWriter("nft").read()),
    "virtual servers": (ipvs_kernel, "parse_servers", lambda: RealKernel().servers()),
    "sets": (ipvs_kernel, "parse_entries", lambda: RealKernel().entries()),
}


@pytest.mark.parametrize("what", READERS)
async def test_what_the_kernel_holds_is_read_in_a_thread(
    what: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module, parser, read = READERS[what]
    threads: list[int] = []

    async def run(*_: object, **__: object) -> Result:
        return Result(0, '{"nftables": []}', "")

    if hasattr(module, "run"):
        monkeypatch.setattr(module, "run", run)
    (tmp_path / "ip_vs").touch()
    monkeypatch.setattr(ipvs_kernel, "PROC", tmp_path / "ip_vs")
    monkeypatch.setattr(module, parser, lambda *_: threads.append(threading.get_ident()))
    await read()
    assert threads and threading.get_ident() not in threads


def test_elements_are_decoded_one_by_one() -> None:
    """Other threads wait while JSON is decoded, and while garbage is collected among what was."""
    elements = ["10.0.0.1", {"elem": {"val": "10.0.0.2"}}]
    document = decode(json.dumps({"nftables": [{"set": {"name": "s", "elem": elements}}]}))
    assert [bytes(each)[:1] for each in document["nftables"][0]["set"]["elem"]] == [b'"', b"{"]
    assert parse_listing(document).elements == {("s", "10.0.0.1"): "", ("s", "10.0.0.2"): ""}


async def comparison(mode: str, what: str, size: int) -> int:
    """Return the lines that a comparison costs in the event loop's thread, after others changed something."""
    site = Site(mode)
    await site.start(LARGE[what](size))
    backend: Any = site.policies if what.startswith("NetworkPolicy") else site.proxy._writers[0].backend
    await backend.verify()
    for each in (backend, getattr(backend, "_chains", backend)):
        if hasattr(each, "_writer"):
            each._writer.generation = getattr(each._writer, "generation", 0) + 1
            each._drift._suspect, each._drift._compared_at = True, float("-inf")
    backend._compared_at = float("-inf")
    with Steps() as steps:
        await backend.verify()
    return steps.count


async def first_write(mode: str, what: str, size: int) -> int:
    site = Site(mode)
    site.policies._clock = FakeClock()
    for each in LARGE[what](size):
        site.followed[type(each)].put(each)
    await site._take_in()
    ruleset = site.enforcer._families[0].rulesets.build()
    with Steps() as steps:
        await site.policies.put(ruleset)
    return steps.count


CASES = [
    ("iptables", "EndpointSlice endpoints"),
    ("nftables", "EndpointSlice endpoints"),
    ("ipvs", "EndpointSlice endpoints"),
    ("nftables", "NetworkPolicy peers by address"),
]


@pytest.mark.parametrize(("mode", "what"), CASES)
async def test_a_comparison_does_not_hold_up_the_event_loop(
    mode: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_changes, "LARGE", 0)
    await comparison(mode, what, 32)
    few, many = [await comparison(mode, what, size) for size in (100, 1100)]
    assert many - few < APART * 1000


async def test_a_first_write_does_not_hold_up_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_changes, "LARGE", 0)
    few, many = [await first_write("nftables", "NetworkPolicy peers by address", size) for size in (100, 1100)]
    assert many - few < APART * 1000


async def test_the_elements_of_policies_are_made_in_slices() -> None:
    def build(count: int) -> int:
        site = Site("nftables")
        table, rulesets = site.enforcer._table, site.enforcer._families[0].rulesets
        for number in range(count):
            table.set_pod(f"default/p{number}", facts(f"10.244.{number // 250}.{number % 250}", {"app": "web"}))
        table.set_pod("default/here", facts("10.244.9.9", {"app": "large"}, here=True))
        peers = [{"podSelector": {"matchExpressions": values(number)}} for number in range(1, 5)]
        table.set_policy(parse(policy("large", ingress=[{"from": peers}])))
        ends = [0]
        with Steps() as steps:
            ends += [steps.count for _ in rulesets.prepare()]
        assert len(ends) > count * 4 // SLICE
        assert max(later - earlier for earlier, later in itertools.pairwise([*ends, steps.count])) < 12 * SLICE
        with Steps() as steps:
            rulesets.build()
        return steps.count

    assert build(1000) - build(100) < APART * 900


def test_a_label_in_no_selector_changes_no_rules() -> None:
    site = Site("nftables")
    table = site.enforcer._table
    table.set_policy(parse(policy("large", ingress=[{"from": [{"podSelector": {"matchLabels": {"app": "web"}}}]}])))
    assert table.set_pod("default/p", facts("10.244.0.1", {"app": "web"}))
    version = table.selections.version
    assert not table.set_pod("default/p", facts("10.244.0.1", {"app": "web", "more": "x"}))
    assert table.selections.version == version
    assert table.set_pod("default/p", facts("10.244.0.2", {"app": "web", "more": "x"}))


def facts(ip: str, labels: dict[str, str], *, here: bool = False) -> PodFacts:
    return PodFacts("default", labels, (ip,), here, "2026")
