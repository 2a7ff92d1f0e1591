"""Virtual machines of Vagrant, created from this work tree without a downloaded box and without KVM.

The box is built here, what the machines need is carried in, and QEMU emulates the processors (WHERRY_DRIVER=kvm for hosts
where that works). libvirt's two daemons are started where nobody did, and ended again. The machines' networks have no way
out, so no packet for a Service or a pod can leave this host.
"""

import contextlib
import functools
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.support import images

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "vagrant"
CACHE = FOLDER / "cache"
STATE = Path(os.environ.get("WHERRY_VM_STATE", "/var/lib/wherry-vm"))
BOX = "wherry/debian12"
PREFIX = os.environ.get("WHERRY_PREFIX", "wherry-test-")
NETWORK = os.environ.get("WHERRY_NETWORK", "192.168.58")
KEEP = os.environ.get("WHERRY_VM_KEEP") == "1"
"""Leave the machines for the next run, which takes them as they are: for work on the tests themselves."""
NODES = ("control-plane", "worker-1")
ENVIRONMENT = {
    "VAGRANT_HOME": str(STATE / "vagrant.d"),
    "VAGRANT_DOTFILE_PATH": str(STATE / "machines"),
    "VAGRANT_DEFAULT_PROVIDER": "libvirt",
    "VAGRANT_CHECKPOINT_DISABLE": "1",
    "WHERRY_BOX": BOX,
    "WHERRY_DRIVER": os.environ.get("WHERRY_DRIVER", "qemu"),
    "WHERRY_WORKERS": str(len(NODES) - 1),
    "WHERRY_CPUS": os.environ.get("WHERRY_CPUS", "1"),
    "WHERRY_MEMORY": os.environ.get("WHERRY_MEMORY", "2048"),
    "WHERRY_PREFIX": PREFIX,
    "WHERRY_NETWORK": NETWORK,
    "WHERRY_MANAGEMENT": os.environ.get("WHERRY_MANAGEMENT", "192.168.59.0/24"),
    "WHERRY_ISOLATED": "1",
}
MINUTE = 60.0


class Failed(AssertionError):
    """A command ended with another status than 0."""


def run(*argv: str, seconds: float = 5 * MINUTE, cwd: Path = ROOT, check: bool = True) -> str:
    """Run a command on the host, below the others' priority, and return its output."""
    result = subprocess.run(
        ["nice", "-n", "10", *argv],
        cwd=cwd,
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    if check and result.returncode != 0:
        raise Failed(f"{' '.join(argv)}: status {result.returncode}\n{result.stdout[-4000:]}\n{result.stderr[-4000:]}")
    return result.stdout


def vagrant(*argv: str, seconds: float = 40 * MINUTE, check: bool = True) -> str:
    """Run vagrant on this tree's machines; what it says is shown, with the time it took."""
    began = time.monotonic()
    _way_into.cache_clear()  # addresses and keys may be others afterwards
    output = run("vagrant", *argv, "--no-tty", seconds=seconds, cwd=FOLDER, check=check)
    print(f"{output}\nvagrant {' '.join(argv)}: {time.monotonic() - began:.0f} s", flush=True)
    return output


@functools.cache
def _way_into(machine: str) -> tuple[str, ...]:
    """Return ssh's options for a machine. Vagrant takes seconds to find the way, a login even more: one is kept open.

    Where that one has ended, with a reboot, ssh logs in anew by itself; without a machine it ends within a minute.
    """
    file = STATE / f"ssh-{machine}"
    file.write_text(run("vagrant", "ssh-config", machine, cwd=FOLDER))
    common = ("-F", str(file), "-o", "BatchMode=yes", "-o", "ConnectTimeout=60", "-o", "ServerAliveInterval=15")
    way = (*common, "-S", str(STATE / f"ssh-{machine}-{os.getpid()}"))
    nowhere = subprocess.DEVNULL
    login = ["ssh", *way, "-f", "-N", "-M", machine]
    subprocess.run(login, check=False, timeout=5 * MINUTE, stdin=nowhere, stdout=nowhere, stderr=nowhere)
    return way


def inside(machine: str, command: str, *, seconds: float = 5 * MINUTE, check: bool = True) -> str:
    """Run a shell command as root in a machine and return its output."""
    return run("ssh", *_way_into(machine), machine, f"sudo {command}", seconds=seconds, check=check)


def kubectl(*argv: str, check: bool = True) -> str:
    """Run the host's kubectl with the kubeconfig that `vagrant up` copied out."""
    return run("kubectl", "--kubeconfig", str(FOLDER / "kubeconfig"), *argv, check=check)


def objects(kind: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = json.loads(kubectl("get", kind, "-o", "json"))["items"]
    return items


def eventually(what: str, holds: Callable[[], bool], seconds: float = 300.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not within {seconds:g} s: {what}"
        time.sleep(2)


def ready_nodes() -> dict[str, str]:
    """Return the Ready nodes with their addresses."""
    found = {}
    for node in objects("nodes"):
        if any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"]["conditions"]):
            addresses = {a["type"]: a["address"] for a in node["status"]["addresses"]}
            found[node["metadata"]["name"]] = addresses["InternalIP"]
    return found


def prepare() -> None:
    """Build the box and gather what is carried in, where that has not been done for this tree."""
    CACHE.mkdir(exist_ok=True)
    run(str(FOLDER / "prepare"), "python", seconds=20 * MINUTE)
    if BOX not in run("vagrant", "box", "list"):
        box = CACHE / "wherry-debian12.box"
        if not box.exists():
            run(str(FOLDER / "box" / "build"), str(box), seconds=20 * MINUTE)
        run("vagrant", "box", "add", "--name", BOX, str(box), seconds=10 * MINUTE)
    (CACHE / "images").mkdir(exist_ok=True)
    images.archive(CACHE / "images" / "busybox.tar", [images.busybox()])


@contextlib.contextmanager
def hypervisor() -> Iterator[None]:
    """Have libvirt's daemons run: the machine's own, or two of ours that are ended again."""
    if Path("/run/libvirt/libvirt-sock").exists() and run("virsh", "-c", "qemu:///system", "version", check=False):
        yield
        return
    STATE.mkdir(parents=True, exist_ok=True)
    started = []
    try:
        for name in ("virtlogd", "libvirtd"):
            pid_file = STATE / f"{name}.pid"
            run(name, "--daemon", "--pid-file", str(pid_file))
            started.append(int(pid_file.read_text()))
        yield
    finally:
        for pid in reversed(started):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
