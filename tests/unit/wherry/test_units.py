"""The systemd units: their contents, their rendering for a machine, and file permissions."""

import os
import pwd
from pathlib import Path

import pytest

from agent.shutdown.logind import DROP_IN_HEAD
from wherry import supervisor, units
from wherry.errors import WherryError
from wherry.security import gather
from wherry.settings import Settings

ROLES = ("control", "agent", "netproxy", "dns")


def settings_of(daemon: str) -> dict[str, list[str]]:
    """Read a unit: setting -> its values."""
    found: dict[str, list[str]] = {}
    for line in (units.FILES / units.UNITS[daemon]).read_text().splitlines():
        name, given, value = line.partition("=")
        if given and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


@pytest.mark.parametrize("daemon", [*ROLES, "containerd"])
def test_every_daemons_unit_restarts_always_and_notifies_readiness(daemon: str) -> None:
    found = settings_of(daemon)
    assert found["Restart"] == ["always"]
    assert found["StartLimitIntervalSec"] == ["0"]
    assert found["Type"] == ["notify"]
    assert int(found["LimitNOFILE"][0]) >= 1 << 20


def test_the_network_role_may_copy_the_sockets_of_its_gateway() -> None:
    (calls,) = settings_of("netproxy")["SystemCallFilter"]
    assert "pidfd_getfd" in calls.split(), "@system-service does not contain it"


@pytest.mark.parametrize("daemon", [*ROLES, "containerd"])
def test_every_daemon_is_started_again_at_once_and_never_given_up(daemon: str) -> None:
    found = settings_of(daemon)
    assert found["RestartSec"] == ["100ms"]
    assert found["StartLimitIntervalSec"] == ["0"]
    assert not {"StartLimitBurst", "StartLimitAction"} & found.keys()
    assert supervisor.Daemon(daemon, [], Path(), Path()).delay == 0


@pytest.mark.parametrize("daemon", [*ROLES, "containerd"])
def test_a_process_that_the_kernel_kills_for_want_of_memory_does_not_end_its_daemon(daemon: str) -> None:
    assert settings_of(daemon)["OOMPolicy"] == ["continue"]


@pytest.mark.parametrize("daemon", ROLES)
def test_every_role_is_watched(daemon: str) -> None:
    assert 0 < int(settings_of(daemon)["WatchdogSec"][0]) <= 60


@pytest.mark.parametrize("daemon", ["agent", "containerd"])
def test_stopping_the_agent_or_the_runtime_ends_no_container(daemon: str) -> None:
    assert settings_of(daemon)["KillMode"] == ["process"]


def test_the_agent_sees_the_machines_own_mounts() -> None:
    private = {
        name for name in settings_of("agent") if name.startswith(("Protect", "Private", "ReadOnly", "ReadWrite"))
    }
    assert not private


def test_the_control_plane_has_no_root_and_no_capability() -> None:
    found = settings_of("control")
    assert found["User"] == ["wherry"]
    assert found["CapabilityBoundingSet"] == [""]
    assert found["NoNewPrivileges"] == ["yes"]
    assert found["ProtectSystem"] == ["strict"]


def test_a_unit_names_this_machines_interpreter_and_runtime() -> None:
    assert "ExecStart=/x/python -P -m wherry.roles agent" in units.unit("agent", python="/x/python")
    assert "ExecStart=/y/containerd --config" in units.unit("containerd", containerd="/y/containerd")


def test_a_file_may_be_read_where_its_bits_and_its_folders_allow_it(tmp_path: Path) -> None:
    os.chmod(tmp_path, 0o755)
    folder = tmp_path / "keys"
    folder.mkdir(mode=0o700)
    key = folder / "client.key"
    key.write_text("secret")
    key.chmod(0o644)
    stranger = os.getuid() + 1
    assert units.may_read(key, os.getuid(), os.getgid())
    assert not units.may_read(key, stranger, stranger)
    folder.chmod(0o711)
    above = all(place.stat().st_mode & 1 for place in folder.resolve().parents)
    assert units.may_read(key, stranger, stranger) == above
    key.chmod(0o600)
    assert not units.may_read(key, stranger, stranger)


async def test_a_reset_removes_the_logind_delay_and_no_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[list[str]] = []

    async def note(argv: list[str], **_: object) -> None:
        reported.append(argv)

    monkeypatch.setattr(units, "run", note)
    drop_in = tmp_path / "99-kubelet.conf"
    await units.forget_shutdown_delay(drop_in)
    drop_in.write_text("[Login]\nInhibitDelayMaxSec=5\n")
    await units.forget_shutdown_delay(drop_in)
    assert drop_in.exists() and reported == []
    drop_in.write_text(f"{DROP_IN_HEAD}[Login]\nInhibitDelayMaxSec=5\n")
    await units.forget_shutdown_delay(drop_in)
    assert not drop_in.exists() and reported == [["systemctl", "kill", "--signal=HUP", "systemd-logind"]]


@pytest.mark.parametrize("daemon", [*ROLES, "containerd"])
def test_no_unit_starts_on_a_machine_without_a_cluster(daemon: str) -> None:
    (path,) = settings_of(daemon)["ConditionPathExists"]
    assert path in ("/etc/wherry/wherry.json", "/etc/wherry/containerd.toml")


def test_the_packages_unit_is_used_where_it_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    etc, packaged = tmp_path / "etc", tmp_path / "packaged"
    for folder in (etc, packaged):
        folder.mkdir()
    monkeypatch.setattr(units, "FOLDER", etc)
    monkeypatch.setattr(units, "PACKAGED", packaged)
    units.install_unit("a.service", "one")
    assert (etc / "a.service").read_text() == "one" and (etc / "a.service").stat().st_mode & 0o777 == 0o600
    (packaged / "a.service").write_text("two")
    units.install_unit("a.service", "one")
    assert (etc / "a.service").read_text() == "one"
    units.install_unit("a.service", "two")
    assert not (etc / "a.service").exists()


def test_the_security_checks_read_the_unit_that_systemd_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    etc, packaged = tmp_path / "etc", tmp_path / "packaged"
    for folder in (etc, packaged):
        folder.mkdir()
    monkeypatch.setattr(units, "FOLDER", etc)
    monkeypatch.setattr(units, "PACKAGED", packaged)
    monkeypatch.setattr(units, "uses_systemd", lambda settings: True)

    def files() -> tuple[Path, ...]:
        return gather._daemon_files(Settings(), ["control", "agent"])

    names = ("wherry-control.service", "wherry-agent.service")
    assert files() == tuple(etc / name for name in names)
    for name in names:
        (packaged / name).touch()
    assert files() == tuple(packaged / name for name in names)
    (etc / names[1]).touch()  # it overrides the package's
    assert files() == (packaged / names[0], etc / names[1])


def test_another_folder_of_snapshots_is_writable_for_the_control_plane_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "backup"
    folder.mkdir()
    monkeypatch.setattr(units, "FOLDER", tmp_path / "units")
    monkeypatch.setattr(units, "_HIDDEN", ("/home",))
    account = pwd.getpwuid(os.getuid())
    monkeypatch.setattr(units, "_account", lambda: account)
    drop_in = tmp_path / "units/wherry-control.service.d/20-snapshots.conf"
    units._allow_snapshot_folder(Settings(snapshot_folder=str(folder)))
    assert drop_in.read_text() == f"[Service]\nReadWritePaths=-{folder}\n"
    units._allow_snapshot_folder(Settings())
    assert not drop_in.exists()
    with pytest.raises(WherryError, match="does not see this folder"):
        units._allow_snapshot_folder(Settings(snapshot_folder="/home/backup"))
    os.chown(folder, os.getuid() + 1, -1)
    with pytest.raises(WherryError, match=f"`chown wherry {folder}`"):
        units._allow_snapshot_folder(Settings(snapshot_folder=str(folder)))
    assert not drop_in.exists()
    assert settings_of("control")["StateDirectory"] == ["wherry/control wherry/snapshots"]
