import shutil
import socket
import sys
from pathlib import Path

import msgspec
import pytest

from kube import interned_strings
from netproxy import modes
from wherry import allocator, check, check_command, firewall, terminal
from wherry.check import ROOTS_FOLDERS
from wherry.errors import WherryError
from wherry.finding import Finding
from wherry.settings import Settings


def test_a_missing_allocator_is_a_warning_with_its_fix(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(allocator, "FOLDERS", (str(tmp_path),))
    found = check._allocator()
    assert found.level == "warning" and "apt-get install libjemalloc2" in found.fix
    (tmp_path / allocator.LIBRARY).touch()
    assert check._allocator().level == "ok"


def test_workers_need_no_other_allocator() -> None:
    of_worker = check._programs(Settings(role="worker"))
    assert not [found for found in of_worker if allocator.LIBRARY in found.what]
    assert [found for found in check._programs(Settings()) if allocator.LIBRARY in found.what]


@pytest.mark.parametrize(
    ("field", "option"),
    [
        ("api_port", "--api-port"),
        ("kubelet_port", "--kubelet-port"),
        ("kubelet_healthz_port", "--kubelet-healthz-port"),
        ("controller_manager_port", "--controller-manager-port"),
        ("scheduler_port", "--scheduler-port"),
        ("proxy_healthz_port", "--proxy-healthz-port"),
        ("proxy_metrics_port", "--proxy-metrics-port"),
    ],
)
def test_a_port_of_a_daemon_that_is_taken_is_an_error_with_the_option_that_changes_it(field: str, option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        found = list(check._ports(msgspec.structs.replace(Settings(), **{field: other.getsockname()[1]})))
    assert any(each.level == "error" and each.fix.endswith(f"choose another with {option}") for each in found)


def test_packages_of_extras_that_are_missing_are_named_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(check._packages(Settings())) == []
    monkeypatch.setattr(check, "CONTROL_PACKAGES", ("uvloop", "no_such_package", "no.such.module"))
    (found,) = check._packages(Settings())
    assert (found.level, found.what) == ("error", "no Python packages no_such_package, no.such.module")
    assert found.fix == "pip install 'wherry[all]'"
    assert list(check._packages(Settings(role="worker"))) == []


def test_an_interpreter_that_never_frees_interned_strings_is_an_error_that_stops_up_and_join(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "getrefcount", lambda each: 3)
    assert check._interpreter().level == "ok"
    monkeypatch.setattr(sys, "getrefcount", lambda each: (1 << 32) - 1)
    for name in ("_packages", "_programs", "_kernel", "_proxy_mode", "_room", "_settings_file", "_certificates"):
        monkeypatch.setattr(check, name, lambda *settings: ())
    monkeypatch.setattr(check.other_network, "findings", lambda settings, running: ())
    monkeypatch.setattr(check.firewall, "obstacles", lambda settings: ())
    with pytest.raises(WherryError, match="nothing was started"):
        check.require(Settings(), running=True)
    printed = capsys.readouterr().err
    assert "never frees interned strings" in printed and interned_strings.FIX in printed


def errors_of(settings: Settings) -> list[tuple[str, str]]:
    return [(found.what, found.fix) for found in check._proxy_mode(settings) if found.level == "error"]


def test_a_proxy_mode_that_this_machine_lacks_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(modes, "IPVS_TABLE", str(tmp_path / "ip_vs"))
    ((what, fix),) = errors_of(Settings(proxy_mode="ipvs"))
    assert what.startswith("--proxy-mode ipvs: this kernel has no IP virtual server")
    assert fix == "choose another --proxy-mode: iptables or nftables"
    monkeypatch.setattr(shutil, "which", lambda program, path=None: None)
    ((what, fix),) = errors_of(Settings(proxy_mode="nftables"))
    assert what.startswith("--proxy-mode nftables: the command nft is not installed")
    assert errors_of(Settings(proxy_mode="ipvs", proxy="none")) == errors_of(Settings()) == []
    with pytest.raises(WherryError, match="nothing was started"):
        check.require_shared(Settings(proxy_mode="ipvs"))


def test_programs_of_root_are_found_by_users_whose_path_lacks_their_folders(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "iptables-restore").touch(0o755)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(check, "ROOTS_FOLDERS", (str(tmp_path),))
    assert check._which("iptables-restore") == str(tmp_path / "iptables-restore")
    assert {"/usr/sbin", "/sbin"} <= set(ROOTS_FOLDERS)


def test_a_command_to_paste_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    chain = firewall.Chain("inet", "filter", "forward", "forward", drops=True)
    (obstacle,) = firewall.judge([chain], Settings(pod_cidr="10.244.0.0/16,fd00::/48"))
    finding = Finding("warning", obstacle.what, obstacle.fix, is_command=True)
    monkeypatch.setattr(check, "findings", lambda settings, running: [finding])
    monkeypatch.setattr(terminal.errors, "_force_terminal", True)
    check.require(Settings(), running=False)
    assert f"\n    {obstacle.fix}\n" in capsys.readouterr().err
    check_command.machine(Settings(prefix="/nowhere"), "table")
    assert f"\n        → {obstacle.fix}\n" in capsys.readouterr().out and len(obstacle.fix) > 200
