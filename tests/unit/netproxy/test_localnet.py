"""Routing of packets for 127.0.0.0/8: the sysctl and its owner."""

from __future__ import annotations

from pathlib import Path

import pytest

from netproxy import localnet
from netproxy.config import ProxyConfig


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / localnet.SETTING).parent.mkdir(parents=True)
    (tmp_path / localnet.SETTING).write_text("0\n")
    return tmp_path


def setting(root: Path) -> str:
    return (root / localnet.SETTING).read_text().strip()


def test_what_this_role_switched_on_it_switches_off_also_in_a_later_life(root: Path, tmp_path: Path) -> None:
    for _ in range(2):
        localnet.switch_on(root, tmp_path)
        assert setting(root) == "1"
    assert localnet.switch_off(root, tmp_path)
    assert setting(root) == "0" and [each.name for each in tmp_path.iterdir()] == ["net"]


def test_a_sysctl_set_by_the_administrator_stays_and_its_effect_is_logged(
    root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (root / localnet.SETTING).write_text("1\n")
    localnet.switch_on(root, tmp_path)
    assert localnet.switch_off(root, tmp_path)
    assert setting(root) == "1"
    assert ["was not set by this role" in record.getMessage() for record in caplog.records] == [True]


def test_the_guard_stays_where_it_cannot_be_switched_off(root: Path, tmp_path: Path) -> None:
    localnet.switch_on(root, tmp_path)
    (root / localnet.SETTING).unlink()
    (root / localnet.SETTING).mkdir()  # cannot be written
    assert not localnet.switch_off(root, tmp_path)


def test_it_is_not_switched_on_without_a_mark(root: Path, tmp_path: Path) -> None:
    localnet.switch_on(root, tmp_path / "none")
    assert setting(root) == "0"


@pytest.mark.parametrize(
    ("mode", "localhost", "addresses", "wanted"),
    [
        ("iptables", True, (), True),
        ("iptables", False, (), False),
        ("iptables", True, ("127.0.0.0/8",), True),
        ("iptables", True, ("primary", "192.0.2.0/24"), False),
        ("nftables", True, (), False),
        ("ipvs", True, (), False),
    ],
)
def test_it_is_wanted_where_node_ports_are_served_on_loopback(
    mode: str, localhost: bool, addresses: tuple[str, ...], wanted: bool
) -> None:
    config = ProxyConfig(localhost_node_ports=localhost, node_port_addresses=addresses)
    assert localnet.is_wanted(config, mode) == wanted
