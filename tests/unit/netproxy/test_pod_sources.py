"""Valid source addresses of pods: CNI results, the table's elements, and changes of the table by others."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from kube import inotify
from netproxy.errors import WriteError
from netproxy.podnet import cni_results, source_guard, source_rules, stranger_rules
from netproxy.podnet.cni_results import BridgePort, CNIResults, UnreadableResult
from netproxy.podnet.source_guard import SourceGuard
from tests.support.nft_in_memory import RecordingWriter
from tests.unit.kube.test_inotify import Kernel

MAC = "8a:09:3e:5e:f1:49"
PORT = BridgePort("vetha", MAC, ("10.244.1.5", "fd00:244:1::5"), ("10.244.1.1",), ("10.244.1.255",))


def result(device: str = "vetha", mac: str = MAC, network: str = "wherry", **changes: Any) -> dict[str, Any]:
    interfaces = [
        {"name": "cni0", "mac": "da:94:ee:68:86:3a"},
        {"name": device, "mac": "5e:7f:68:14:4a:0e"},
        {"name": "eth0", "mac": mac.upper(), "sandbox": "/var/run/netns/cni-1"},
    ]
    ips = [
        {"version": "4", "interface": 2, "address": "10.244.1.5/24", "gateway": "10.244.1.1"},
        {"address": "fd00:244:1::5/64"},
    ]
    found = {"cniVersion": "0.4.0", "interfaces": interfaces, "ips": ips, **changes}
    return {"kind": "cniCacheV1", "containerId": "c1", "networkName": network, "ifName": "eth0", "result": found}


def parse(document: Any) -> BridgePort | UnreadableResult | None:
    return cni_results.parse(json.dumps(document).encode(), "wherry", "cni0")


def test_a_cni_result_maps_ports_to_pods() -> None:
    assert parse(result()) == PORT
    arguments = [["IgnoreUnknown", "1"], ["K8S_POD_NAMESPACE", "a"], ["K8S_POD_NAME", "web"], ["K8S_POD_UID", "u-1"]]
    assert parse({**result(), "cniArgs": arguments}) == PORT._replace(pod_uid="u-1", pod="a/web")
    assert parse({**result(), "cniArgs": None}) == PORT


@pytest.mark.parametrize(
    "document",
    [
        result(network="other"),
        result(interfaces=[{"name": "cni1"}, {"name": "vetha"}, {"name": "eth0", "mac": MAC, "sandbox": "/x"}]),
        result(interfaces=[{"name": "eth7"}, {"name": "eth0", "mac": MAC, "sandbox": "/x"}]),
    ],
)
def test_pods_of_other_networks_and_bridges_are_left_out(document: Any) -> None:
    assert parse(document) is None


@pytest.mark.parametrize(
    "document",
    [
        result(interfaces=[]),
        result(interfaces=[{"name": "cni0"}, {"name": "a"}, {"name": "b"}, {"name": "e", "mac": MAC, "sandbox": "/x"}]),
        result(ips=[]),
        result(ips=[{"address": "nonsense"}]),
        result(ips=[{"address": "10.244.1.5/24", "gateway": "nonsense"}]),
        [],
        {},
        {"result": 3},
    ],
)
def test_a_cni_result_without_the_owner_of_a_port_is_unreadable(document: Any) -> None:
    assert isinstance(parse(document), UnreadableResult)
    assert isinstance(cni_results.parse(b"{", "wherry", "cni0"), UnreadableResult)


def annotated(document: dict[str, Any], length: int) -> str:
    """Return a result as containerd and Go write it for a pod with an annotation of so many "<"."""
    head, tail = dict(document), document["result"]
    del head["result"]
    head["capabilityArgs"] = {"io.kubernetes.cri.pod-annotations": {"x": "<" * length}}
    return (json.dumps(head)[:-1] + ', "result": ' + json.dumps(tail) + "}").replace("<", "\\u003c")


def test_a_pod_whose_annotations_are_as_large_as_they_may_be_is_known(tmp_path: Path) -> None:
    text = annotated(result(), 256 << 10)
    assert text.index('"result"') > 1 << 20
    (tmp_path / "wherry-c1-eth0").write_text(text)
    assert CNIResults(tmp_path, "wherry", "cni0").read_all() == {"wherry-c1-eth0": PORT}


def test_a_result_that_cannot_be_read_is_distinguished_from_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cni_results, "LARGEST", 10_000)
    (tmp_path / "wherry-c1-eth0").write_text(annotated(result(), 2000))
    (tmp_path / "wherry-c2-eth0").mkdir()
    (tmp_path / "wherry-c3-eth0").write_text("")
    (tmp_path / "other-c4-eth0").write_text("{")
    results = CNIResults(tmp_path, "wherry", "cni0")
    assert {name: type(found) for name, found in results.read_all().items()} == {
        f"wherry-c{number}-eth0": UnreadableResult for number in (1, 2, 3)
    }
    assert results.read("wherry-c5-eth0") is None
    assert CNIResults(tmp_path / "none", "wherry", "cni0").read_all() == {}
    with pytest.raises(NotADirectoryError):
        CNIResults(tmp_path / "wherry-c3-eth0", "wherry", "cni0").read_all()


def test_an_unknown_pod_address_raises_an_error(tmp_path: Path) -> None:
    named = {**result(), "cniArgs": [["K8S_POD_UID", "u-1"]]}
    (tmp_path / "wherry-c1-eth0").write_text(json.dumps(named))
    results, torn = CNIResults(tmp_path, "wherry", "cni0"), tmp_path / "wherry-c2-eth0"
    assert results.addresses() == {"10.244.1.5": "u-1", "fd00:244:1::5": "u-1"}
    torn.write_text("{")
    with pytest.raises(OSError, match="wherry-c2-eth0"):
        results.addresses()
    os.utime(torn, (1, 1))  # from before the machine's boot
    assert results.addresses().keys() == {"10.244.1.5", "fd00:244:1::5"}


def test_a_result_is_read_again_only_when_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[bytes] = []

    def count(data: bytes, *known: str) -> BridgePort | UnreadableResult | None:
        parsed.append(data)
        return original(data, *known)

    original = cni_results.parse
    monkeypatch.setattr(cni_results, "parse", count)
    file, results = tmp_path / "wherry-c1-eth0", CNIResults(tmp_path, "wherry", "cni0")
    file.write_text("")
    assert isinstance(results.read_all()[file.name], UnreadableResult)
    file.write_text(json.dumps(result()))
    for _ in range(3):
        assert results.read_all() == {file.name: PORT} and results.read(file.name) == PORT
    assert len(parsed) == 2
    file.unlink()
    assert results.read_all() == {}


def test_a_port_may_send_from_its_own_addresses_and_advertise_them() -> None:
    assert str(source_rules.link_local(MAC)) == "fe80::8809:3eff:fe5e:f149"
    found = {f"{name} {key}" for name, key in source_rules.elements_of(PORT)}
    assert found == {
        "ports vetha",
        f"macs vetha . {MAC}",
        "addresses4 vetha . 10.244.1.5",
        "addresses6 vetha . fd00:244:1::5",
        "addresses6 vetha . fe80::8809:3eff:fe5e:f149",
        "targets vetha . 0xfd000244000100000000000000000005",
        "targets vetha . 0xfe8000000000000088093efffe5ef149",
        f"options vetha . {0x01018A093E5EF149}",
        f"options vetha . {0x02018A093E5EF149}",
        "broadcasts vetha . 10.244.1.255",
        f"taken-macs {MAC}",
        "taken4 10.244.1.5",
        "taken4 10.244.1.1",
        "taken6 fd00:244:1::5",
        "taken6 fe80::8809:3eff:fe5e:f149",
        "taken-targets 0xfd000244000100000000000000000005",
        "taken-targets 0xfe8000000000000088093efffe5ef149",
    }


def test_a_port_that_is_not_known_may_use_what_is_nobodys_of_this_nodes_ranges_alone() -> None:
    made = stranger_rules.chains(("10.244.1.0/24", "fd00:244:1::/64"))
    four, arp, six = made.values()
    assert four[-3:] == ("ip saddr @taken4 drop", "ip saddr 10.244.1.0/24 accept", "drop")
    assert arp[-4:-1] == (
        "arp saddr ip 0.0.0.0 arp daddr ip @taken4 drop",
        "arp saddr ip 10.244.1.0/24 accept",
        "arp saddr ip 0.0.0.0 arp daddr ip 10.244.1.0/24 accept",
    )
    assert six[-2:] == ("ip6 saddr fd00:244:1::/64 accept", "drop")
    target = "@th,64,128 & 0xffffffffffffffff0000000000000000 == 0xfd000244000100000000000000000000"
    assert f"ip6 saddr :: icmpv6 type nd-neighbor-solicit {target} accept" in six
    assert f"ip6 saddr fd00:244:1::/64 icmpv6 type nd-neighbor-advert {target} accept" in six
    accepting = [rule for rules in stranger_rules.chains(()).values() for rule in rules if rule.endswith("accept")]
    assert accepting and all("icmpv6" in rule for rule in accepting)


async def test_the_table_follows_the_ranges_of_the_node(tmp_path: Path, devices: set[str]) -> None:
    writer = RecordingWriter()
    guard = SourceGuard(tmp_path, "cni0", to=writer)
    task = asyncio.create_task(guard.run())
    try:
        for cidr in ("10.244.1.0/24", "10.244.7.0/24"):
            guard.set_node_ranges([cidr])
            wanted = f"ip saddr {cidr} accept"
            await until(lambda wanted=wanted: wanted in writer.contents.rules.get("sent-by-strangers", ()))
            assert str(writer.contents.rules).count("ip saddr 10.244.") == 1
            await guard.tried.wait()
    finally:
        task.cancel()


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    found = {"vetha", "vethb"}

    def index(name: str) -> int:
        if name not in found:
            raise OSError("no such device")
        return 7

    monkeypatch.setattr(socket, "if_nametoindex", index)
    monkeypatch.setattr(source_guard, "CHECK_PERIOD", 0.02)
    return found


async def until(condition: Any) -> None:
    for _ in range(500):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("still not so")


async def test_the_table_follows_pods_that_come_and_go_and_is_repaired(tmp_path: Path, devices: set[str]) -> None:
    folder, writer = tmp_path / "results", RecordingWriter()
    folder.mkdir()
    (folder / "wherry-c0-eth0").write_text(json.dumps(result("vethz")))  # of another network namespace, or long gone
    (folder / "wherry-c1-eth0").write_text(json.dumps(result()))
    guard = SourceGuard(folder, "cni0", to=writer)
    task = asyncio.create_task(guard.run())

    def held(name: str) -> set[str]:
        return {key for kind, key in writer.contents.elements if kind == name}

    try:
        await until(lambda: held("ports") == {"vetha"})
        assert set(writer.contents.rules) == {*source_rules.CHAINS, *stranger_rules.chains(())} and writer.contents.sets
        (folder / "wherry-c2-eth0").write_text(json.dumps(result("vethb", "02:00:00:00:00:02")))
        await until(lambda: held("ports") == {"vetha", "vethb"})
        (folder / "wherry-c1-eth0").unlink()
        await until(lambda: held("ports") == {"vethb"} and all("vetha" not in key for key in held("addresses6")))
        writer.contents.elements.clear()
        writer.contents.rules["prerouting"].clear()
        writer.generation += 1
        await until(lambda: held("ports") == {"vethb"} and writer.contents.rules["prerouting"])
        devices.discard("vethb")  # its file was left behind
        await until(lambda: not held("ports"))
    finally:
        task.cancel()
    await guard.cleanup()
    assert not writer.there


@pytest.mark.parametrize("refused", ["nothing", "instances", "watches"])
async def test_a_new_pod_is_seen_without_inotify_and_in_a_new_folder(
    refused: str, tmp_path: Path, devices: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Kernel(inotify._libc)
    kernel.no_instance, kernel.no_watch = refused == "instances", refused == "watches"
    monkeypatch.setattr(inotify, "_libc", kernel)
    monkeypatch.setattr(inotify, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(source_guard, "CHECK_PERIOD", 3600)
    folder, writer = tmp_path / "results", RecordingWriter()
    guard = SourceGuard(folder, "cni0", to=writer)
    task = asyncio.create_task(guard.run())

    def ports() -> set[str]:
        return {key for kind, key in writer.contents.elements if kind == "ports"}

    try:
        await guard.tried.wait()
        assert writer.there and not ports()
        (folder / "wherry-c1-eth0").write_text(json.dumps(result()))
        await until(lambda: ports() == {"vetha"})
        shutil.rmtree(folder)
        await until(lambda: folder.exists() and not ports())
        (folder / "wherry-c2-eth0").write_text(json.dumps(result("vethb", "02:00:00:00:00:02")))
        await until(lambda: ports() == {"vethb"})
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_while_a_result_cannot_be_read_no_port_without_one_may_send(
    tmp_path: Path, devices: set[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    bridged = {"vetha", "vethb", "odd name;"}

    async def listed(bridge: str) -> set[str]:
        assert bridge == "cni0"
        return set(bridged)

    async def ignored(self: SourceGuard) -> None:
        pass

    devices.add("cni0")
    monkeypatch.setattr(source_guard, "_veths_of", listed)
    monkeypatch.setattr(SourceGuard, "_set_bridge", ignored)
    torn, writer = tmp_path / "wherry-c2-eth0", RecordingWriter()
    (tmp_path / "wherry-c1-eth0").write_text(json.dumps(result()))
    task = asyncio.create_task(SourceGuard(tmp_path, "cni0", to=writer).run())

    def held(name: str) -> set[str]:
        return {key for kind, key in writer.contents.elements if kind == name}

    def logged() -> int:
        return sum("wherry-c2-eth0 cannot be read" in record.getMessage() for record in caplog.records)

    try:
        await until(lambda: held("ports") == {"vetha"})
        assert not held("closed")
        torn.write_text("{")
        await until(lambda: held("closed") == {"vethb"})
        await until(lambda: logged() == 1)
        bridged.add("vethc")
        await until(lambda: held("closed") == {"vethb", "vethc"})
        assert held("ports") == {"vetha"}
        torn.write_text(json.dumps(result("vethb", "02:00:00:00:00:02")))
        await until(lambda: held("ports") == {"vetha", "vethb"} and not held("closed"))
        assert logged() == 1
    finally:
        task.cancel()
    assert writer.contents.rules["prerouting"][0] == writer.contents.rules["input"][0] == "iifname @closed drop"


async def test_a_failed_write_is_logged_once_and_retried(
    tmp_path: Path, devices: set[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refusing(RecordingWriter):
        tries = 0

        async def apply(self, text: str) -> None:
            self.tries += 1
            if self.tries < 5:
                raise WriteError("no bridge family")
            await super().apply(text)

    monkeypatch.setattr(source_guard, "RETRY", 0.01)
    writer = Refusing()
    task = asyncio.create_task(SourceGuard(tmp_path, "cni0", to=writer).run())
    try:
        await until(lambda: writer.there)
    finally:
        task.cancel()
    assert [r.getMessage() for r in caplog.records].count(
        "pods can send from addresses that are not theirs: no bridge family"
    ) == 1
