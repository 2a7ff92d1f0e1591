"""Wherry's own containerd: its configuration, and the import of images.

It has its own root, state folder and socket, so it does not affect a containerd of Docker or another program on the machine.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import socket
import subprocess
from pathlib import Path

from kube.files import write_file
from kube.process import CommandError, run
from wherry import cni_plugins, daemons, oci, os_errors, pause, registries
from wherry.daemons import where_logged
from wherry.errors import WherryError
from wherry.progress import Progress, position_in
from wherry.settings import Settings
from wherry.units import uses_systemd

CAP_SYS_RESOURCE = 24
LOAD_SECONDS = 600.0
CONNECT_SECONDS = 2.0
NAMESPACE = "k8s.io"
BIN_DIRS = (2, 1)
"""First version of containerd that searches several folders of CNI plugins."""
LIST_BYTES = 32 << 20
"""Largest list that containerd sends, as large as the agent receives (cri/channel.py); by default it is half of that."""
RESTART_MONITOR = ("internal.v1.restart", "monitor.container.v1.restart")
"""Plugin that starts ended containers again if labels of their images say so, in containerd 1 and from 2 on.

Before 1.7.33, 2.0.10, 2.1.9, 2.2.5 and 2.3.2 such labels make it run commands as root (CVE-2026-53488).
"""
UNUSED = (
    *RESTART_MONITOR,
    "internal.v1.opt",
    "snapshotter.v1.aufs",
    "snapshotter.v1.btrfs",
    "snapshotter.v1.devmapper",
    "snapshotter.v1.zfs",
)
"""Plugins that no pod here uses."""


def lacks_sys_resource() -> bool:
    """True if the OOM score of a process cannot be lowered, which containerd must then not try."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return not int(line.split()[1], 16) >> CAP_SYS_RESOURCE & 1
    return True


def configuration(settings: Settings, *, bin_dirs: bool = False) -> str:
    """Return containerd's configuration file; `bin_dirs` if the installed version knows that setting.

    It is of version 2, which containerd 1.5 to 2.x read, so that an upgrade of the machine's packages needs no `wherry up`.
    The folders of CNI plugins are searched in their order: by `bin_dirs` from 2.1 on, by links before (cni_plugins.py).
    CDI is off by default in 1.7. NRI (off in 1.7, on in 2) has a socket of its own: another containerd's is at the usual path.
    """
    cni_plugins.require(settings)
    searched = [str(folder) for folder in cni_plugins.searched(settings)]
    folders = f"bin_dirs = {json.dumps(searched)}" if bin_dirs else f"bin_dir = {json.dumps(searched[0])}"
    layout = settings.layout
    disabled = json.dumps([f"io.containerd.{name}" for name in UNUSED])
    return f"""\
version = 2
root = "{layout.containerd_root}"
state = "{layout.containerd_state}"
disabled_plugins = {disabled}

[grpc]
  address = "{layout.containerd_socket}"
  max_send_message_size = {LIST_BYTES}

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{settings.sandbox_image or pause.IMAGE}"
  restrict_oom_score_adj = {json.dumps(lacks_sys_resource())}
  netns_mounts_under_state_dir = true
  stream_server_address = "127.0.0.1"
  max_container_log_line_size = 16384
  enable_unprivileged_ports = true
  enable_unprivileged_icmp = true
  enable_cdi = true

  [plugins."io.containerd.grpc.v1.cri".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = {json.dumps(uses_systemd(settings))}

  [plugins."io.containerd.grpc.v1.cri".cni]
    {folders}
    conf_dir = "{layout.cni_configuration}"

  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{layout.registries}"

[plugins."io.containerd.nri.v1.nri"]
  socket_path = "{layout.run / "nri.sock"}"
"""


def has_bin_dirs() -> bool:
    """Return whether the installed containerd searches several folders of CNI plugins."""
    program = shutil.which("containerd")
    if program is None:
        return False
    try:
        argv = [program, "--version"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=False)  # noqa: S603 - no shell
    except (OSError, subprocess.TimeoutExpired):
        return False
    found = re.search(r"\bv?([0-9]+)\.([0-9]+)\.[0-9]+", done.stdout)
    return found is not None and (int(found[1]), int(found[2])) >= BIN_DIRS


def write_configuration(settings: Settings) -> None:
    """Write the files of image registries, and where Wherry runs its own containerd, that one's configuration."""
    layout = settings.layout
    layout.etc.mkdir(parents=True, exist_ok=True)
    registries.write(layout.registries, settings.all_registries)
    if not settings.own_containerd:
        return
    layout.cni_configuration.mkdir(parents=True, exist_ok=True)
    bin_dirs = has_bin_dirs()
    if settings.own_pod_network:
        cni_plugins.remove_links(layout)
    elif not bin_dirs:  # links of an older version stay: a daemon that has not been restarted uses them
        cni_plugins.link(settings)
    text = configuration(settings, bin_dirs=bin_dirs).encode()
    path = layout.containerd_configuration
    if path.exists() and path.read_bytes() != text:  # a containerd that runs has read the old one
        layout.run.mkdir(parents=True, exist_ok=True)
        daemons.containerd_pending_file(settings).touch()
    write_file(path, text, 0o600)
    if not settings.sandbox_image:
        pause.write_image(layout.pause_archive)


async def ensure_sandbox_image(settings: Settings, seconds: float = 30.0) -> None:
    """Wait for containerd and give it the built-in sandbox image, unless it has exactly this one under its name."""
    try:
        async with asyncio.timeout(seconds):
            while True:
                try:
                    digests = await image_digests(settings)
                    break
                except CommandError:
                    await asyncio.sleep(0.05)
    except TimeoutError as error:
        raise WherryError(f"containerd does not answer; see {where_logged(settings, 'containerd')}") from error
    archive = settings.layout.pause_archive
    if not settings.sandbox_image and digests.get(pause.IMAGE) != await asyncio.to_thread(oci.digest, archive):
        await import_archive(settings, archive)


def require_running(settings: Settings) -> None:
    """Raise WherryError at once if the container runtime does not answer, for which `ctr` waits ten seconds."""
    path = settings.runtime.removeprefix("unix://")
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(CONNECT_SECONDS)
            probe.connect(path)
    except OSError as error:
        if settings.own_containerd:
            raise WherryError("containerd does not run: `wherry up` starts it") from error
        raise WherryError(f"the container runtime at {path} does not answer: {error.strerror or error}") from error


def require_archive(archive: Path) -> None:
    """Raise WherryError if there is no such file, or if it is a folder or a device."""
    if archive.is_dir():
        raise WherryError(f"{archive} is a folder: name an archive")
    if archive.exists() and not archive.is_file():
        raise WherryError(f"{archive} is no archive: it is not a regular file")
    if not archive.exists():
        raise WherryError(f"{archive}: no such file")


_NO_ARCHIVE = re.compile(r"archive/tar|unrecognized image format|unexpected EOF")
"""Errors of `ctr` about files that are no archives of images."""


async def import_archive(settings: Settings, archive: Path, progress: Progress | None = None) -> str:
    """Import the images of an archive (OCI layout or `docker save`) and return the output of `ctr`."""
    require_archive(archive)
    argv = [*ctr(settings), "images", "import", "--all-platforms", "-"]
    try:
        with archive.open("rb") as file, position_in(file.fileno(), progress or Progress("")):
            result = await run(argv, timeout=LOAD_SECONDS, check=False, stdin=file.fileno())
    except OSError as error:
        raise WherryError(f"{archive} cannot be read: {os_errors.reason(error)}") from error
    if result.returncode != 0:
        said = result.stderr.strip() or result.stdout.strip()
        what = ": it is no archive of images (an OCI layout or `docker save`)" if _NO_ARCHIVE.search(said) else ""
        raise WherryError(f"{archive} cannot be imported: {said}{what}")
    return result.stdout


async def image_digests(settings: Settings) -> dict[str, str]:
    """Return the digest that each name of containerd's images leads to."""
    lines = (await run([*ctr(settings), "images", "list"])).stdout.splitlines()[1:]
    rows = [line.split() for line in lines]
    return {row[0]: row[2] for row in rows if len(row) > 2}


def server_version(printed: str) -> str:
    """Return the server's version from what `ctr version` prints; empty if there is none."""
    found = re.search(r"^Server:\s+Version:\s*(\S+)", printed, re.MULTILINE)
    return found[1] if found else ""


def ctr(settings: Settings) -> list[str]:
    """Return the beginning of the command lines of `ctr` for this machine's runtime."""
    return ["ctr", "--address", settings.runtime.removeprefix("unix://"), "--namespace", NAMESPACE]
