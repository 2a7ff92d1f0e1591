"""The CNI configuration, the node's facts and the routes' check."""

import asyncio
import json
import os
import threading
from pathlib import Path

import pytest

from netproxy import local_addresses
from netproxy.config import PodNetworkConfig, ProxyConfig
from netproxy.podnet import cluster_routes, cni, kernel_routes, network
from netproxy.settings import FixedChainSettings
from netproxy.xtables.iptables_chains import fixed
from tests.support.services import node

GUARDED = Path("/run/wherry-pods/a.conf")


def document(cidr: str = "10.244.1.0/24", host_ports: bool = True) -> dict[str, object]:
    return cni.network_list(
        [cidr], bridge="cni0", mtu=1450, host_ports=host_ports, data_dir="/var/lib/cni", ready_file=GUARDED
    )


def test_the_chain_of_plugins_is_bridge_and_portmap() -> None:
    made = document()
    plugins = made["plugins"]
    assert isinstance(plugins, list)
    assert [plugin["type"] for plugin in plugins] == ["bridge", "portmap"]
    assert plugins[0]["ipMasq"] is False
    assert plugins[0]["mtu"] == 1450
    assert plugins[0]["ipam"]["resolvConf"] == str(GUARDED)
    assert plugins[0]["ipam"]["ranges"] == [[{"subnet": "10.244.1.0/24"}]]
    assert plugins[0]["ipam"]["routes"] == [{"dst": "0.0.0.0/0"}]
    without = document(host_ports=False)["plugins"]
    assert isinstance(without, list)
    assert len(without) == 1


def test_the_file_is_replaced_whole_and_only_when_it_differs(tmp_path: Path) -> None:
    folder = str(tmp_path / "net.d")
    assert cni.write(folder, document())
    path = tmp_path / "net.d" / "10-wherry.conflist"
    inode = path.stat().st_ino
    assert not cni.write(folder, document())
    assert path.stat().st_ino == inode
    assert cni.write(folder, document("10.244.2.0/24"))
    assert json.loads(path.read_text())["plugins"][0]["ipam"]["ranges"] == [[{"subnet": "10.244.2.0/24"}]]
    assert os.listdir(folder) == ["10-wherry.conflist"]  # no temporary file is left for the runtime to load
    ready_file = cni.ready_file(str(tmp_path / "run"), folder)
    assert ready_file != cni.ready_file(str(tmp_path / "run"), "/elsewhere")
    cni.allow_pods(ready_file)
    cni.allow_pods(ready_file)
    assert ready_file.read_text() == ""
    cni.remove(folder, ready_file)
    cni.remove(folder, ready_file)
    assert not ready_file.exists()
    assert os.listdir(folder) == []


async def test_a_list_that_was_removed_or_changed_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def nothing(*_: object, **__: object) -> tuple[str, ...]:
        return ()

    for module, name in ((local_addresses, "global_addresses"), (kernel_routes, "read_links")):
        monkeypatch.setattr(module, name, nothing)
    monkeypatch.setattr(cluster_routes, "installed", lambda _: True)
    folder = tmp_path / "net.d"
    settings = PodNetworkConfig(mtu=1450, cni_conf_dir=str(folder), run_dir=str(tmp_path / "run"))
    made = network.PodNetwork(ProxyConfig(pod_network=settings))
    monkeypatch.setattr(made._settings, "verify", nothing)
    assert not await made.verify() and not folder.exists(), "the node has no range yet"
    assert await made.configure(node("node-1", "10.244.1.0/24"))
    written = (folder / cni.FILE_NAME).read_text()
    for damage in (b"", b"{\xff", None):
        if damage is None:
            (folder / cni.FILE_NAME).unlink()
        else:
            (folder / cni.FILE_NAME).write_bytes(damage)
        await made.verify()
        assert (folder / cni.FILE_NAME).read_text() == written
    assert caplog.text.count("it is written again") == 3

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    (folder / cni.FILE_NAME).unlink()
    await made.verify()
    assert "cannot be written: [Errno 28] No space left on device" in caplog.text


async def test_a_verification_under_way_does_not_write_an_earlier_list_over_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(*_: object, **__: object) -> tuple[str, ...]:
        return ()

    for module, name in ((local_addresses, "global_addresses"), (kernel_routes, "read_links")):
        monkeypatch.setattr(module, name, nothing)
    monkeypatch.setattr(cluster_routes, "installed", lambda _: True)
    folder = tmp_path / "net.d"
    settings = PodNetworkConfig(mtu=1450, cni_conf_dir=str(folder), run_dir=str(tmp_path / "run"))
    made = network.PodNetwork(ProxyConfig(pod_network=settings))
    monkeypatch.setattr(made._settings, "verify", nothing)
    await made.configure(node("node-1", "10.244.1.0/24"))
    (folder / cni.FILE_NAME).unlink()
    slow, go_on, sync = threading.Event(), threading.Event(), os.fsync

    def first_is_slow(file: int) -> None:
        if not slow.is_set():
            slow.set()
            go_on.wait(30)
        sync(file)

    monkeypatch.setattr(os, "fsync", first_is_slow)
    verification = asyncio.create_task(made.verify())
    await asyncio.to_thread(slow.wait, 30)
    configuration = asyncio.create_task(made.configure(node("node-1", "10.244.2.0/24")))
    try:
        await asyncio.wait({configuration}, timeout=0.2)  # without an order it is done by now
    finally:
        go_on.set()
        await asyncio.gather(verification, configuration)
    assert cni.configured_ranges(str(folder)) == ("10.244.2.0/24",)


def test_the_pod_ranges_of_an_earlier_process_are_read_and_a_damaged_file_counts_as_none(tmp_path: Path) -> None:
    assert cni.configured_ranges(str(tmp_path)) == ()
    both = ["10.244.1.0/24", "fd00:1::/64"]
    cni.write(
        str(tmp_path),
        cni.network_list(both, bridge="cni0", mtu=1450, host_ports=True, data_dir="/c", ready_file=GUARDED),
    )
    assert cni.configured_ranges(str(tmp_path)) == tuple(both)
    damaged = (
        '{"plugins": [',
        "[]",
        "{}",
        '{"plugins": {}}',
        '{"plugins": [{"ipam": {"ranges": [[]]}}]}',
        '{"plugins": [{"ipam": {"ranges": [[{"subnet": "x; flush ruleset"}]]}}]}',
        '{"plugins": [{"ipam": {"ranges": 5}}]}',
    )
    for text in damaged:
        (tmp_path / cni.FILE_NAME).write_text(text)
        assert cni.configured_ranges(str(tmp_path)) == ()
    (tmp_path / cni.FILE_NAME).write_bytes(b"\xff")
    assert cni.configured_ranges(str(tmp_path)) == ()


def test_the_nodes_pod_ranges_and_address_are_read() -> None:
    assert network.pod_cidrs_of(node("a", "10.244.1.0/24")) == ("10.244.1.0/24",)
    assert network.pod_cidrs_of(node("a")) == ()
    assert network.internal_ip(node("a", ip="192.168.0.1")) == "192.168.0.1"
    assert network.internal_ip(node("a", ip="192.168.0.1"), 6) == ""
    assert network.internal_ip(node("a", ip="fd00::2"), 6) == "fd00::2"


def test_nothing_but_addresses_of_a_node_gets_into_rules() -> None:
    assert network.pod_cidrs_of(node("a", "fd00::%x } ; flush ruleset ; # /64")) == ()
    assert network.internal_ip(node("a", ip="fd00::2%x } ; flush ruleset ; #"), 6) == ""
    assert network.internal_ip(node("a", ip="elsewhere")) == ""


def test_only_pod_traffic_that_leaves_the_cluster_is_masqueraded() -> None:
    settings = network.with_pods(FixedChainSettings(cluster_cidrs=("10.244.0.0/16",)), ("10.244.1.0/24", "fd00:1::/64"))
    assert fixed(settings)["nat", "WHERRY-POD-MASQ"] == (
        "-s 10.244.1.0/24 -d 10.244.0.0/16 -j RETURN",
        "-s 10.244.1.0/24 -d 224.0.0.0/4 -j RETURN",
        "-s 10.244.1.0/24 -j MASQUERADE --random-fully",
    )
    assert fixed(FixedChainSettings())["nat", "WHERRY-POD-MASQ"] == ()
