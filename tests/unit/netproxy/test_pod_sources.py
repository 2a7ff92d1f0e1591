"""Which addresses pods may send from: CNI results read, the table's elements, what happens when others change it."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from kube import inotify
from netproxy.errors import WriteError
from netproxy.nftables.writer import RecordingWriter
from netproxy.podnet import cni_results, source_guard, source_rules
from netproxy.podnet.cni_results import PodPort
from netproxy.podnet.source_guard import SourceGuard
from tests.unit.kube.test_inotify import Kernel

MAC = "8a:09:3e:5e:f1:49"
PORT = PodPort("vetha", MAC, ("10.244.1.5", "fd00:244:1::5"), ("10.244.1.1",), ("10.244.1.255",))


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


def parse(document: Any) -> PodPort | None:
    return cni_results.parse(json.dumps(document).encode(), "wherry", "cni0")


def test_a_result_says_which_port_is_whose() -> None:
    assert parse(result()) == PORT
    arguments = [["IgnoreUnknown", "1"], ["K8S_POD_NAME", "web"], ["K8S_POD_UID", "u-1"]]
    assert parse({**result(), "cniArgs": arguments}) == PORT._replace(pod_uid="u-1")
    assert parse({**result(), "cniArgs": None}) == PORT


@pytest.mark.parametrize(
    "document",
    [
        result(network="other"),
        result(interfaces=[]),
        result(ips=[]),
        result(ips=[{"address": "nonsense"}]),
        result(ips=[{"address": "10.244.1.5/24", "gateway": "nonsense"}]),
        result(interfaces=[{"name": "eth7"}, {"name": "eth0", "mac": MAC, "sandbox": "/x"}]),
        [],
        {"result": 3},
    ],
)
def test_what_is_not_a_pod_on_the_bridge_is_left_out(document: Any) -> None:
    assert parse(document) is None
    assert cni_results.parse(b"{", "wherry", "cni0") is None


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
        assert set(writer.contents.rules) == set(source_rules.CHAINS) and writer.contents.sets
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


async def test_what_cannot_be_written_is_said_once_and_tried_again(
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
