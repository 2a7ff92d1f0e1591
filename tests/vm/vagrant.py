"""Virtual machines of Vagrant's, made from this work tree: where no box can be fetched and no KVM is at hand.

The box is built here, what the machines need is carried in, and QEMU emulates the processors (WHERRY_DRIVER=kvm for hosts
where that works). libvirt's two daemons are started where nobody did, and ended again. The machines' networks have no way
out, so no packet for a Service or a pod can leave this host.
"""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
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
    output = run("vagrant", *argv, "--no-tty", seconds=seconds, cwd=FOLDER, check=check)
    print(f"{output}\nvagrant {' '.join(argv)}: {time.monotonic() - began:.0f} s", flush=True)
    return output


def inside(machine: str, command: str, *, seconds: float = 5 * MINUTE, check: bool = True) -> str:
    """Run a shell command as root in a machine and return its output."""
    return run("vagrant", "ssh", machine, "--no-tty", "-c", f"sudo {command}", cwd=FOLDER, seconds=seconds, check=check)


def kubectl(*argv: str, check: bool = True) -> str:
    """Run the host's kubectl with the kubeconfig that `vagrant up` copied out."""
    return run("kubectl", "--kubeconfig", str(FOLDER / "kubeconfig"), *argv, check=check)


def objects(kind: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = json.loads(kubectl("get", kind, "-o", "json"))["items"]
    return items


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
