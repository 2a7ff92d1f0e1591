"""Kernel settings that rules rely on: restored when others change them."""

from pathlib import Path

import pytest

from kube.process import CommandError
from netproxy import metrics, sysctl
from netproxy.sysctl import BRIDGED, EnforcedSettings, network_settings

FORWARD = "net/ipv4/ip_forward"


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """No module is loaded; what was to be, is listed."""
    requested: list[list[str]] = []

    async def run(argv: list[str], **_: object) -> None:
        requested.append(argv)
        raise CommandError(argv, "no such module")

    monkeypatch.setattr(sysctl, "run", run)
    return requested


def write(root: Path, **values: str) -> None:
    for name, value in values.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(value)


async def test_a_changed_sysctl_is_set_again_logged_once_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    counted = metrics.SYSCTL_REPAIRS.labels("net.ipv4.ip_forward")._value
    before = counted.get()
    write(tmp_path, net__ipv4__ip_forward="0\n")
    kept = EnforcedSettings({FORWARD: "1", "net/ipv4/conf/gone/rp_filter": "2"}, tmp_path)
    assert await kept.verify() == []  # the first time nobody had changed it
    assert sysctl.read(FORWARD, tmp_path) == "1"
    assert await kept.verify() == []
    for _ in range(3):
        write(tmp_path, net__ipv4__ip_forward="0\n")
        assert await kept.verify() == [FORWARD]
        assert sysctl.read(FORWARD, tmp_path) == "1"
    assert counted.get() - before == 3
    assert [record.getMessage() for record in caplog.records] == [
        "sysctl net.ipv4.ip_forward was changed by another program and is set again to 1"
    ]


async def test_a_device_that_is_made_anew_was_changed_by_nobody(tmp_path: Path) -> None:
    name = "net/ipv6/conf/cni0/accept_ra"
    kept = EnforcedSettings({name: "0"}, tmp_path)
    for _ in range(2):
        write(tmp_path, net__ipv6__conf__cni0__accept_ra="1")
        assert await kept.verify() == []
        assert sysctl.read(name, tmp_path) == "0"
        (tmp_path / name).unlink()
        assert await kept.verify() == []


async def test_a_sysctl_that_cannot_be_set_is_logged_once_and_retried_each_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, net__ipv4__ip_forward="0")
    tries: list[str] = []

    def refuse(self: Path, text: str) -> int:
        tries.append(text)
        raise OSError(30, "Read-only file system")

    kept = EnforcedSettings({FORWARD: "1"}, tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", refuse)
        assert await kept.verify() == await kept.verify() == []
    assert tries == ["1", "1"]
    assert [record.getMessage() for record in caplog.records] == [
        "sysctl net.ipv4.ip_forward cannot be set to 1: Read-only file system"
    ]
    assert await kept.verify() == []
    assert sysctl.read(FORWARD, tmp_path) == "1"


async def test_the_bridge_filter_is_loaded_when_it_is_gone(
    tmp_path: Path, loaded: list[list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    kept = EnforcedSettings({BRIDGED[4]: "1"}, tmp_path)
    await kept.verify()
    await kept.verify()
    assert loaded == [["modprobe", "br_netfilter"]] * 2
    assert len(caplog.records) == 1
    write(tmp_path, **{BRIDGED[4].replace("/", "__"): "0"})
    await kept.verify()
    assert len(loaded) == 2 and sysctl.read(BRIDGED[4], tmp_path) == "1"


def test_each_family_and_mode_relies_on_its_own_settings() -> None:
    four = network_settings((4,), "cni0", "wherry-vxlan", ipvs=False)
    assert four == {FORWARD: "1", BRIDGED[4]: "1", "net/ipv4/conf/wherry-vxlan/rp_filter": "2"}
    both = network_settings((4, 6), "cni0", "wherry-vxlan", ipvs=True)
    assert both == four | {
        "net/ipv6/conf/all/forwarding": "1",
        BRIDGED[6]: "1",
        "net/ipv6/conf/cni0/accept_ra": "0",
        "net/ipv4/vs/conntrack": "1",
    }
