"""Each proxy mode's writer alone, beside what `iptables-restore` or `nft` needs for the same text.

Run as root: `python -m bench.proxy [--services 0 1000 5000 10000] [--flavours nft legacy nftables]`, in network namespaces of
its own. `cold` brings an empty kernel to so many Services of one endpoint each; `change` adds one Service, `endpoint` gives
one another endpoint. Wall and processor seconds of ours (planning, text, tool), then of the tool alone with the very
text that ours gave it, in a second namespace that went the same way. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field

from bench import signals
from bench.proxy_site import FLAVOURS, POD, Stopwatch, address, endpoint_address
from netproxy.backend import Backend
from netproxy.iptables.backend import IPTablesBackend
from netproxy.main import GC_THRESHOLDS
from netproxy.model import ServicePort, plan_service
from netproxy.nft.writer import NftWriter
from netproxy.nftables.backend import NFTablesBackend
from netproxy.settings import FixedChainSettings, RuleSettings
from netproxy.xtables.writer import RestoreWriter
from tests.support import services
from tests.support.netns import Namespace, namespaces

CHANGES = 7
RULES = RuleSettings(local_cidrs=("10.244.0.0/16",))
FIXED = FixedChainSettings(service_cidrs=("10.96.0.0/12",), cluster_cidrs=("10.244.0.0/16",))


@dataclass
class Texts:
    """Input of the tool, step by step."""

    given: list[str] = field(default_factory=list)


def backend(flavour: str, texts: Texts, *, in_process: bool) -> tuple[Backend, list[str]]:
    """Return the mode's backend, which notes each text, and the tool's command."""
    if flavour == "nftables":

        class Nft(NftWriter):
            async def apply(self, text: str) -> None:
                texts.given.append(text)
                await super().apply(text)

        return NFTablesBackend(Nft(in_process=in_process), RULES, FIXED), ["nft", "-f", "-"]

    class Restore(RestoreWriter):
        async def apply(self, text: str) -> None:
            texts.given.append(text)
            await super().apply(text)

    return IPTablesBackend(Restore(flavour), RULES, FIXED), [f"iptables-{flavour}-restore", "--noflush", "-w", "5"]


def planned(name: str, ip: str, *endpoints: str) -> tuple[ServicePort, ...]:
    return plan_service(services.service(name, ip), [services.slice_of(name, *endpoints)])


Measurements = dict[str, list[tuple[float, float]]]


async def ours(proxy: Backend, texts: Texts, count: int) -> tuple[Measurements, dict[str, list[str]]]:
    """Return (wall, processor) of each step, and the texts that each step wrote."""
    objects = [
        (services.service(f"other-{n}", address(n)), [services.slice_of(f"other-{n}", endpoint_address(n))])
        for n in range(count)
    ]
    measured: Measurements = {"cold": [], "change": [], "endpoint": []}
    written: dict[str, list[str]] = {"cold": [], "change": [], "endpoint": []}

    async def step(kind: str, make: Callable[[], dict[str, tuple[ServicePort, ...]]]) -> None:
        texts.given.clear()
        watch = Stopwatch()
        changed = make()
        await (proxy.start(changed) if kind == "cold" else proxy.apply(changed))
        measured[kind].append(watch.read())
        written[kind].append("".join(texts.given))

    await step("cold", lambda: {f"default/other-{n}": plan_service(*each) for n, each in enumerate(objects)})
    for n in range(CHANGES):
        name, ip = f"new-{n}", f"10.110.0.{n + 1}"
        await step("change", lambda name=name, ip=ip: {f"default/{name}": planned(name, ip, POD)})  # type: ignore[misc]
        more = (POD, f"10.244.1.{n + 3}")
        await step("endpoint", lambda name=name, ip=ip, more=more: {f"default/{name}": planned(name, ip, *more)})  # type: ignore[misc]
    return measured, written


def alone(namespace: Namespace, command: list[str], written: dict[str, list[str]]) -> Measurements:
    """Give the tool the same texts in the same order in a namespace that holds nothing."""
    entered = ["nsenter", f"--net={namespace.path}", *command]
    measured: Measurements = {"cold": [], "change": [], "endpoint": []}
    order = [("cold", written["cold"][0])]
    for pair in zip(written["change"], written["endpoint"], strict=True):
        order += list(zip(("change", "endpoint"), pair, strict=True))
    for kind, text in order:
        watch = Stopwatch()
        subprocess.run(entered, input=text, text=True, check=True, capture_output=True)
        measured[kind].append(watch.read())
    return measured


def one_size(flavour: str, count: int, *, in_process: bool) -> dict[str, object]:
    with namespaces(f"np-o{os.getpid()}", f"np-t{os.getpid()}") as (first, second):
        texts = Texts()
        proxy, command = backend(flavour, texts, in_process=in_process)
        mine, written = first.inside(lambda: ours(proxy, texts, count), timeout=120)
        tool = alone(second, command, written)
    result: dict[str, object] = {"mode": flavour, "services": count}
    for kind in mine:
        for who, measured in (("ours", mine), ("tool", tool)):
            result[f"{kind}_{who}_s"] = round(statistics.median(wall for wall, _ in measured[kind]), 4)
            result[f"{kind}_{who}_cpu_s"] = round(statistics.mean(cpu for _, cpu in measured[kind]), 4)
    return result


def run(counts: list[int], flavours: list[str], *, in_process: bool = True) -> dict[str, object]:
    gc.set_threshold(*GC_THRESHOLDS)  # as the role does
    results = [one_size(flavour, count, in_process=in_process) for flavour in flavours for count in counts]
    return {"benchmark": "proxy", "results": results}


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--services", type=int, nargs="+", default=[0, 1000, 5000, 10000])
    arguments.add_argument("--flavours", nargs="+", choices=FLAVOURS, default=list(FLAVOURS))
    arguments.add_argument(
        "--without-library", action="store_true", help="make all changes of nftables with the program"
    )
    given = arguments.parse_args()
    signals.end_in_order()
    print(json.dumps(run(given.services, given.flavours, in_process=not given.without_library), indent=1))
