"""Everything changes at once, others damage the rules, the role is restarted: the kernel then holds what a fresh node's does.

Each round goes on from the round before: the role is started on what the last one left, objects change as fast as
the API reports them, chains and tables are flushed. Then the same objects are given to a role in a namespace that
has never seen any, and the two kernels are compared, rule by rule and element by element, and cluster DNS name by name.

In the gate it is one short round a mode. By hand, for as long as one likes, with the round's seed in the failure:

    WHERRY_SOAK_SECONDS=900 python -m pytest tests/host/netproxy/test_soak.py
"""

import asyncio
import contextlib
import dataclasses
import json
import os
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import dns.exception
import dns.message
import dns.query
import dns.rdatatype
import msgspec
import pytest

from netproxy import pod_subsystem, proxy
from netproxy.config import DNSConfig, PodNetworkConfig, ProxyConfig
from netproxy.nft.listing import parse
from netproxy.xtables.iptables_chains import SHARED
from netproxy.xtables.restore_text import parse_save
from tests.host.netproxy.conftest import NODE_IP, running
from tests.support.api_churn import SERVICES, APIChurn
from tests.support.memory_api import MemoryAPI
from tests.support.netns import Namespace, namespaces
from tests.support.services import node

SECONDS = float(os.environ.get("WHERRY_SOAK_SECONDS", "2"))
ROUND, SETTLED = 20.0, 90.0
Objects = dict[tuple[str, str], msgspec.Struct]
TABLES = (("ip", "kube-proxy"), ("ip6", "kube-proxy"), ("ip", "wherry-policy"), ("ip6", "wherry-policy"))
DAMAGE = (
    "{iptables} -t nat -F",
    "{iptables} -F",
    "{iptables} -t nat -F KUBE-SERVICES",
    "{iptables} -D FORWARD 1",
    "{ip6tables} -t nat -F",
    "nft flush table ip kube-proxy",
    "nft delete table ip6 kube-proxy",
    "nft flush map ip kube-proxy service-ips",
    "nft delete table ip wherry-policy",
    "nft flush chain ip wherry-policy ingress",
    "ip link del wherry0",
)


@contextlib.contextmanager
def bare_node(name: str) -> Iterator[Namespace]:
    with namespaces(f"np-s{os.getpid()}-{name}") as (made,):
        made.run("ip", "link", "add", "uplink", "type", "veth", "peer", "name", "uplink2")
        for address in (f"{NODE_IP}/24", "fd00:77::1/64"):
            made.run("ip", "address", "add", address, "dev", "uplink", *(["nodad"] if ":" in address else []))
        made.run("ip", "link", "set", "uplink", "up")
        made.run("ip", "link", "set", "uplink2", "up")
        made.run("nft", "add", "table", "ip", "somebody")  # others' must stay
        made.run("iptables-nft", "-N", "SOMEBODY")
        yield made


def configured(mode: str, folder: Path) -> ProxyConfig:
    return ProxyConfig(
        hostname_override="node-1",
        healthz_bind_address="127.0.0.1:10256",
        metrics_bind_address="",
        cluster_cidrs=("10.244.0.0/16", "fd00:244::/32"),
        service_cidrs=("10.96.0.0/12", "fd00:96::/112"),
        mode="nftables" if mode == "nftables" else "iptables",
        iptables_flavour="nft" if mode == "nftables" else mode,
        dns=DNSConfig(resolv_conf="/dev/null"),
        pod_network=PodNetworkConfig(
            cni_conf_dir=str(folder / "net.d"), cni_data_dir=str(folder / "cni"), run_dir=str(folder / "run")
        ),
    )


def held(place: Namespace) -> dict[str, Any]:
    """Return what the kernel holds of ours and of others, without what may differ: counters, the order of equals."""
    found: dict[str, Any] = {"addresses": place.run("ip", "-j", "address", "show", "dev", "lo").count('"local"')}
    shared = {name for _, name in SHARED}
    for tool in ("iptables-nft", "iptables-legacy", "ip6tables-nft", "ip6tables-legacy"):
        for table, chains in parse_save(place.run(f"{tool}-save")).items():
            for name, rules in chains.items():
                found[f"{tool} {table} {name}"] = sorted(rules) if name in shared else rules
    for family, table in TABLES:
        listed = place.run("nft", "-j", "list", "table", family, table, check=False)
        contents = parse(json.loads(listed)) if listed else None
        found[f"nft {family} {table}"] = contents and (contents.elements, contents.rules, sorted(contents.sets))
    found["nft tables"] = sorted(
        line for line in place.run("nft", "list", "tables").splitlines() if "filter" not in line
    )
    return {name: value for name, value in found.items() if value}


def difference(left: dict[str, Any], right: dict[str, Any]) -> list[str]:
    names = sorted(left.keys() | right.keys())
    return [
        f"{name}: {left.get(name)} / {right.get(name)}"[:1500] for name in names if left.get(name) != right.get(name)
    ]


async def one_round(place: Namespace, config: ProxyConfig, seed: int, seconds: float, objects: Objects) -> Objects:
    """Change everything for so long, and return what there is in the end."""
    churn, chance = APIChurn(MemoryAPI(), seed, objects), random.Random(seed)
    flavour = config.iptables_flavour
    async with running(config, churn.api):
        end = time.monotonic() + seconds
        damaged = time.monotonic()
        while time.monotonic() < end:
            for _ in range(chance.randrange(1, 6)):
                churn.step()
            await asyncio.sleep(chance.choice([0, 0.005, 0.03]))
            if time.monotonic() - damaged > 0.7:
                damaged = time.monotonic()
                command = chance.choice(DAMAGE).format(iptables=f"iptables-{flavour}", ip6tables=f"ip6tables-{flavour}")
                await asyncio.to_thread(lambda command=command: place.run(*command.split(), check=False))
            if chance.random() < 0.01:
                churn.api.go_away()
                await asyncio.sleep(0.05)
                churn.api.go_away(False)
        with bare_node("fresh") as other:
            await asyncio.to_thread(lambda: other.inside(lambda: as_fresh(place, other, config, churn.objects), 300))
        await eventually(lambda: wrong_names(churn.objects))
    return churn.objects


async def as_fresh(place: Namespace, other: Namespace, config: ProxyConfig, objects: Objects) -> None:
    """Tell another node of all objects at once, and wait until both hold the same."""

    def wrong() -> list[str]:
        mine, fresh = held(place), held(other)
        known = any("10.244.1.0" in str(value) for value in fresh.values())
        return difference(mine, fresh) if known else ["the other node knows no pods yet"]

    config = dataclasses.replace(config, healthz_bind_address="")
    async with running(config, APIChurn(MemoryAPI(), 0, objects).api):
        await eventually(wrong)


def wrong_names(objects: Objects) -> list[str]:
    """Ask cluster DNS for every Service that there may be."""
    wrong = []
    for number in range(SERVICES):
        made: Any = objects.get(("Service", f"default/s{number}"))
        expected = sorted(ip for ip in made.spec.cluster_ips if "." in ip) if made else []
        question = dns.message.make_query(f"s{number}.default.svc.cluster.local", dns.rdatatype.A)
        try:
            answer = dns.query.udp(question, "10.96.0.10", timeout=5)
        except dns.exception.Timeout:
            wrong.append(f"s{number}: no answer")
            continue
        found = sorted(str(each) for rrset in answer.answer for each in rrset)
        if found != expected or (answer.rcode() == 3) != (made is None):
            wrong.append(f"s{number}: {found}, {answer.rcode()}, not {expected}")
    return wrong


async def eventually(find: Callable[[], list[str]]) -> None:
    """Wait until nothing is wrong: the role repairs what the last damage did."""
    deadline = time.monotonic() + SETTLED
    while wrong := await asyncio.to_thread(find):
        assert time.monotonic() < deadline, "\n".join(wrong)
        await asyncio.sleep(0.3)


@pytest.mark.timeout(SECONDS * 3 + 300)
@pytest.mark.parametrize("mode", ["nft", "legacy", "nftables"])
def test_after_changes_damage_and_restarts_the_kernel_holds_what_a_fresh_node_does(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for module in (pod_subsystem, proxy):
        monkeypatch.setattr(module, "CHECK_PERIOD", 0.5)
    config, began, seed = configured(mode, tmp_path), time.monotonic(), random.randrange(1 << 30)
    objects: Objects = {("Node", "node-1"): node("node-1", "10.244.1.0/24", NODE_IP)}
    with bare_node("churned") as place:
        while (left := SECONDS - (time.monotonic() - began)) > 0:
            seed += 1

            def work(seed: int = seed, left: float = left, objects: Objects = objects) -> Awaitable[Objects]:
                return one_round(place, config, seed, min(ROUND, left), objects)

            try:
                objects = place.inside(work, 400)  # type: ignore[arg-type]
            except AssertionError as error:
                raise AssertionError(f"round {seed}: {error}") from error
            caplog.clear()
