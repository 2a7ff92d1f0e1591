"""The systemd side of the daemons: units, module and sysctl files, and the account that the control plane runs as.

A role's unit is the file of systemd/ with this installation's interpreter in it. The control plane needs no root: it has an
account of its own, and its unit gives it its keys and database before every start, because `wherry up`, which writes
them, is root. Units are started without waiting for them; the caller waits for the cluster itself and can so say what is
missing.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from agent.shutdown.logind import DROP_IN, DROP_IN_HEAD
from kube.files import write_file
from kube.process import run
from wherry.errors import WherryError
from wherry.settings import USER, Settings
from wherry.snapshot_options import CREDENTIALS

UNITS = {
    "containerd": "wherry-containerd.service",
    "control": "wherry-control.service",
    "agent": "wherry-agent.service",
    "netproxy": "wherry-netproxy.service",
    "dns": "wherry-dns.service",
}
_HERE = Path(__file__).resolve().parent
FILES = _HERE / "systemd" if (_HERE / "systemd").is_dir() else _HERE.parent / "systemd"
"""Units and the files beside them: in the package in an installed wheel, else in the source tree."""
FOLDER = Path("/etc/systemd/system")
PACKAGED = Path("/usr/lib/systemd/system")
"""Units of the Debian package."""
SYSUSERS = Path("/etc/sysusers.d/wherry.conf")
SYSCTL = Path("/etc/sysctl.d/90-wherry.conf")
MODULES = Path("/etc/modules-load.d/wherry.conf")
SLICE_LIMITS = Path("/run/systemd/system.control")
LOW_PORT, SNAPSHOTS = "10-low-port.conf", "20-snapshots.conf"
_HIDDEN = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")  # noqa: S108 - compared with a path
"""Folders that the control plane's unit does not see."""
_FIRST_FREE_PORT = 1024


def uses_systemd(settings: Settings) -> bool:
    """True if units are installed: systemd is PID 1 and this is the machine's own installation."""
    return settings.prefix == "/" and Path("/run/systemd/system").is_dir()


async def start(settings: Settings, daemons: Sequence[str], containerd: str = "") -> None:
    """Install and enable the daemons' units and have systemd start them; return before they are ready."""
    await prepare_machine()
    let_read(settings)
    for daemon in daemons:
        install_unit(UNITS[daemon], unit(daemon, containerd=containerd))
    if "control" in daemons:
        _allow_low_port(settings.api_port)
        _allow_snapshot_folder(settings)
    await run(["systemctl", "daemon-reload"], timeout=120)
    names = [UNITS[daemon] for daemon in daemons]
    await run(["systemctl", "enable", "--quiet", *names], timeout=120)
    await run(["systemctl", "reset-failed", *names], check=False)
    await run(["systemctl", "start", "--no-block", *names])


async def stop(daemons: Iterable[str]) -> bool:
    """Stop the units and take them out of the boot; False if none ran. Containers run on."""
    names = [UNITS[daemon] for daemon in daemons]
    ran = any([await main_pid(daemon) for daemon in daemons])
    await run(["systemctl", "disable", "--now", "--quiet", *reversed(names)], timeout=180, check=False)
    return ran


async def restart(daemons: Iterable[str]) -> None:
    """Have systemd restart the units; return before they are ready. An interrupted command leaves none stopped."""
    await run(["systemctl", "restart", "--no-block", *(UNITS[daemon] for daemon in daemons)], timeout=120)


async def main_pid(daemon: str) -> int:
    """Return the process ID of a daemon, 0 if it does not run."""
    shown = await run(["systemctl", "show", "--property=MainPID", "--value", UNITS[daemon]], check=False)
    return int(shown.stdout.strip() or 0)


async def restarts(daemon: str) -> int:
    """Return the number of restarts of a daemon by systemd since the unit was started."""
    shown = await run(["systemctl", "show", "--property=NRestarts", "--value", UNITS[daemon]], check=False)
    return int(shown.stdout.strip() or 0)


async def remove() -> None:
    """Remove the units, the files beside them and the control plane's account."""
    for name in UNITS.values():
        (FOLDER / name).unlink(missing_ok=True)
        shutil.rmtree(FOLDER / f"{name}.d", ignore_errors=True)
    for path in (SYSUSERS, SYSCTL, MODULES):
        path.unlink(missing_ok=True)
    await forget_shutdown_delay()
    await run(["systemctl", "daemon-reload"], timeout=120, check=False)
    await run(["systemctl", "reset-failed", *UNITS.values()], check=False)
    if _account() is not None:
        await run(["userdel", USER], check=False)


async def forget_shutdown_delay(drop_in: Path = DROP_IN) -> None:
    """Restore logind's delay of shutdowns to the value before the agent's; settings of other programs are kept."""
    with contextlib.suppress(OSError):
        if drop_in.read_text().startswith(DROP_IN_HEAD):
            drop_in.unlink()
            await run(["systemctl", "kill", "--signal=HUP", "systemd-logind"], check=False)


async def remove_slices() -> None:
    """End what runs in the pods' slices, and make systemd forget them with their limits."""
    await run(["systemctl", "stop", "kubepods.slice"], timeout=120, check=False)
    for folder in SLICE_LIMITS.glob("kubepods*.slice.d"):
        shutil.rmtree(folder, ignore_errors=True)


def unit(daemon: str, *, python: str = sys.executable, containerd: str = "") -> str:
    """Return the text of a daemon's unit on this machine."""
    text = (FILES / UNITS[daemon]).read_text().replace("/opt/wherry/bin/python", python)
    return text.replace("/usr/bin/containerd", containerd or "/usr/bin/containerd")


def unit_file(daemon: str) -> Path:
    """Return the file of a daemon's unit that systemd reads."""
    name = UNITS[daemon]
    return PACKAGED / name if not (FOLDER / name).exists() and (PACKAGED / name).exists() else FOLDER / name


def install_unit(name: str, text: str) -> None:
    """Write a unit, except where the Debian package has the same: one in /etc would override it after the next upgrade."""
    packaged = PACKAGED / name
    if packaged.is_file() and packaged.read_text() == text:
        (FOLDER / name).unlink(missing_ok=True)
    else:
        write_file(FOLDER / name, text.encode(), 0o600)


READ_BY_SERVER = (
    "audit-policy.yaml",
    "audit-webhook.kubeconfig",
    "authentication.yaml",
    "authentication-webhook.kubeconfig",
    "authorization.yaml",
    "encryption.yaml",
    CREDENTIALS,
    "tokens.csv",
)
"""Files of /etc/wherry that may hold secrets, so that their owners closed them to everybody else."""


def let_read(settings: Settings) -> None:
    """Let the control plane's account read the settings and what administrators wrote for it; WherryError where it may not.

    Its own keys and database are given to it by its unit, before every start.
    """
    account = _account()
    if account is None or settings.is_worker:
        return
    layout = settings.layout
    for path in (layout.settings, *(layout.etc / name for name in READ_BY_SERVER)):
        with contextlib.suppress(FileNotFoundError):
            os.chown(path, 0, account.pw_gid)
            path.chmod(0o640)
    # The folder is closed to others, and its group is the control plane's: files in it may be readable for all.
    with contextlib.suppress(FileNotFoundError):
        os.chown(layout.addons, 0, account.pw_gid)
    files = [settings.etcd_cafile, settings.etcd_certfile, settings.etcd_keyfile]
    if settings.snapshot_s3_bucket:
        files += [str(settings.snapshot_options.credentials), settings.snapshot_s3_ca]
    for file in files:
        own = Path(file).is_relative_to(settings.layout.pki)  # of a member that joined; given to it with its keys
        if file and not own and not may_read(Path(file), account.pw_uid, account.pw_gid):
            raise WherryError(
                f"the control plane runs as user {USER} and may not read {file}: "
                f"put it where {USER} may look, and type chgrp {USER} {file}; chmod g+r {file}"
            )


def may_read(path: Path, user: int, group: int) -> bool:
    """True if an account can open a file: the file's own bits and those of every folder above it allow it."""
    path = path.resolve()
    for place in (path, *path.parents):
        found = place.stat()
        shift = 6 if found.st_uid == user else 3 if found.st_gid == group else 0
        if not found.st_mode >> shift & (4 if place == path else 1):
            return False
    return True


def _account() -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(USER)
    except KeyError:
        return None


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _allow_low_port(port: int) -> None:
    """Let the control plane bind its port where that is one for root."""
    path = FOLDER / f"{UNITS['control']}.d" / LOW_PORT
    if port >= _FIRST_FREE_PORT:
        path.unlink(missing_ok=True)
        return
    lines = ["[Service]", "AmbientCapabilities=CAP_NET_BIND_SERVICE", "CapabilityBoundingSet=CAP_NET_BIND_SERVICE"]
    # A capability in a user namespace of its own is none in the network's.
    write_file(path, "\n".join([*lines, "PrivateUsers=no", ""]).encode(), 0o600)


def _allow_snapshot_folder(settings: Settings) -> None:
    """Let the control plane write another folder of snapshots; raises WherryError if its account may not."""
    path = FOLDER / f"{UNITS['control']}.d" / SNAPSHOTS
    if not settings.snapshot_folder:
        path.unlink(missing_ok=True)
        return
    folder, account = settings.snapshot_options.folder.resolve(), _account()
    if any(folder.is_relative_to(hidden) for hidden in _HIDDEN):
        raise WherryError(
            f"--snapshot-folder {folder}: the control plane's unit does not see this folder; name another one"
        )
    if account is not None and folder.stat().st_uid != account.pw_uid:
        raise WherryError(
            f"--snapshot-folder {folder}: the control plane runs as user {USER} and may not write it: `chown {USER} {folder}`"
        )
    # Without the minus a disk that is not mounted would keep the API server from starting.
    write_file(path, f"[Service]\nReadWritePaths=-{folder}\n".encode(), 0o600)


async def prepare_machine() -> None:
    """Make the account, and load modules and kernel settings now as they will be at every boot."""
    write(SYSUSERS, (FILES / "sysusers.d" / SYSUSERS.name).read_text())
    await run(["systemd-sysusers", str(SYSUSERS)])
    present = []
    for line in (FILES / "modules-load.d" / MODULES.name).read_text().splitlines():
        name, _, remark = line.partition("#")
        # A module that is named but is not there would make the boot report a failure.
        if name.strip() and (await run(["modprobe", name.strip()], check=False)).returncode == 0:
            present.append(name.strip())
        elif name.strip() and "optional" not in remark:
            present.append(name.strip())
    write(MODULES, "".join(f"{name}\n" for name in present))
    write(SYSCTL, (FILES / "sysctl.d" / SYSCTL.name).read_text())
    await run(["sysctl", "--quiet", "--load", str(SYSCTL)], check=False)
