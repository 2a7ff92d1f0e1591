"""A containerd of the test's own: root, state, socket, CNI configuration and network namespace apart from the host's.

The namespace has no route out, so no pod's packet can leave the host. containerd is started with nsenter, not
`ip netns exec`, which would remount /sys and hide the cgroups from runc. Everything is undone at the end, also
after a failure: sandboxes, shims, mounts, namespace, files; processes are ended by their own IDs only.
"""

import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import grpc

from cri.messages import api
from tests.support import images
from wherry.containerd import UNUSED

CNI_PLUGINS = "/usr/lib/cni"
_CAP_SYS_RESOURCE = 24
_DEADLINE = 30.0


class Containerd:
    """A running containerd; `endpoint` is what a CRI client dials."""

    def __init__(
        self, name: str, folder: Path, pod_cidr: str, extra_config: str = "", root: Path | None = None
    ) -> None:
        self.root = root or folder / "root"
        self.name = name
        self.folder = folder
        self.pod_cidr = pod_cidr
        self.extra_config = extra_config
        self.restart_monitor = False
        self.socket = folder / "containerd.sock"
        self.endpoint = f"unix://{self.socket}"
        self.netns = Path("/var/run/netns") / name
        self.log = folder / "containerd.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Return containerd's process ID."""
        assert self._process is not None, "containerd does not run"
        return self._process.pid

    def start(self) -> None:
        """Start containerd and return when its socket answers."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                ["nsenter", f"--net={self.netns}", "containerd", "--config", str(self.folder / "config.toml")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + _DEADLINE
        while self.ctr("version", check=False).returncode != 0:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"containerd does not answer:\n{self.log.read_text()[-4000:]}")
            time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End containerd; containers keep running, as they do on a real node."""
        if self._process is None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def restart(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Stop and start containerd, keeping its containers."""
        self.stop(how)
        self.start()

    def ctr(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run containerd's own client in CRI's namespace."""
        command = ["ctr", "--address", str(self.socket), "--namespace", "k8s.io", *arguments]
        return subprocess.run(command, check=check, capture_output=True, text=True, stdin=subprocess.DEVNULL)

    def netns_run(self, *command: str) -> str:
        """Run a command in the network namespace that the sandboxes' links lead to; return what it prints."""
        argv = ["nsenter", f"--net={self.netns}", *command]
        return subprocess.run(argv, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout

    def load(self, what: Iterable[images.Image]) -> None:
        """Build the images and import them."""
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            self.ctr("images", "import", str(images.archive(Path(folder) / "images.tar", what)))

    def write_config(self) -> None:
        """Write containerd's configuration and the CNI network."""
        (self.folder / "config.toml").write_text(_config(self))
        net = self.folder / "net.d"
        net.mkdir(exist_ok=True)
        (net / "10-test.conflist").write_text(json.dumps(_network(self)))

    def clean(self) -> None:
        """Remove every trace."""
        with contextlib.suppress(OSError, RuntimeError, subprocess.SubprocessError):
            if self._process is None:
                self.start()
            with contextlib.suppress(grpc.RpcError):
                self._remove_sandboxes()
            self._remove_tasks()
        self.stop()
        for pid in _shims(self.socket):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        subprocess.run(["ip", "netns", "delete", self.name], check=False, capture_output=True)
        _unmount_below(self.folder)
        _unmount_below(self.root)
        _remove_cgroups(self.name)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _remove_sandboxes(self) -> None:
        with grpc.insecure_channel(self.endpoint) as channel:
            call = functools.partial(_call, channel)
            listed = call("ListPodSandbox", api.ListPodSandboxRequest(), api.ListPodSandboxResponse)
            for sandbox in listed.items:
                stop = api.StopPodSandboxRequest(pod_sandbox_id=sandbox.id)
                call("StopPodSandbox", stop, api.StopPodSandboxResponse)
                remove = api.RemovePodSandboxRequest(pod_sandbox_id=sandbox.id)
                call("RemovePodSandbox", remove, api.RemovePodSandboxResponse)

    def _remove_tasks(self) -> None:
        for task in self.ctr("tasks", "ls", "-q").stdout.split():
            self.ctr("tasks", "delete", "--force", task, check=False)
        deadline = time.monotonic() + _DEADLINE
        while self.ctr("tasks", "ls", "-q").stdout.split() and time.monotonic() < deadline:
            time.sleep(0.05)


@contextlib.contextmanager
def start_containerd(
    name: str,
    *,
    load: Iterable[images.Image] | None = None,
    pod_cidr: str = "10.244.77.0/24",
    extra_config: str = "",
    root: Path | None = None,
    restart_monitor: bool = False,
) -> Iterator[Containerd]:
    """Run a containerd in the network namespace `name` (made here) with busybox and the pause image loaded.

    `root` is where images go, `extra_config` is appended to config.toml, and
    `restart_monitor` leaves out of it that this plugin is disabled. The name must be unique on the host. Cgroups
    below /`name` are removed at the end, so tests that give a sandbox a cgroup parent put it there.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir="/tmp"))
    folder.chmod(0o711)  # a pod with users of its own is nobody here, and its root file system is below
    daemon = Containerd(name, folder, pod_cidr, extra_config, root)
    daemon.restart_monitor = restart_monitor
    try:
        subprocess.run(["ip", "netns", "add", name], check=True, capture_output=True)
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True, capture_output=True)
        daemon.write_config()
        daemon.start()
        daemon.load(load if load is not None else [images.busybox(), images.pause()])
        yield daemon
    finally:
        daemon.clean()


def lacks_sys_resource() -> bool:
    """Return whether this host withholds CAP_SYS_RESOURCE, without which OOM scores cannot be lowered."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return not int(line.split()[1], 16) >> _CAP_SYS_RESOURCE & 1
    return True


def _call(channel: grpc.Channel, rpc: str, request: Any, answer: Any) -> Any:
    path = f"/runtime.v1.RuntimeService/{rpc}"
    serializer = type(request).SerializeToString
    call = channel.unary_unary(path, request_serializer=serializer, response_deserializer=answer.FromString)
    return call(request, timeout=_DEADLINE)


def _config(daemon: Containerd) -> str:
    disabled = [
        f"io.containerd.{name}" for name in UNUSED if not (daemon.restart_monitor and name.endswith(".restart"))
    ]
    return f"""\
version = 2
root = "{daemon.root}"
state = "{daemon.folder}/state"
disabled_plugins = {json.dumps(disabled)}
[grpc]
  address = "{daemon.socket}"
[plugins."io.containerd.grpc.v1.cri"]
  netns_mounts_under_state_dir = true
  sandbox_image = "{images.PAUSE_IMAGE}"
  restrict_oom_score_adj = {str(lacks_sys_resource()).lower()}
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{CNI_PLUGINS}"
    conf_dir = "{daemon.folder}/net.d"
{daemon.extra_config}
"""


def _network(daemon: Containerd) -> dict[str, object]:
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": daemon.pod_cidr}]],
        "dataDir": f"{daemon.folder}/ipam",
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": False, "ipam": addresses}
    return {"cniVersion": "1.0.0", "name": "test", "plugins": [bridge]}


def _shims(socket: Path) -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError):
                arguments = (folder / "cmdline").read_bytes().split(b"\0")
                if arguments[0].endswith(b"containerd-shim-runc-v2") and str(socket).encode() in arguments:
                    found.append(int(folder.name))
    return found


def _remove_cgroups(name: str) -> None:
    """Remove what tests made by giving sandboxes a cgroup parent below /<name>."""
    mount = Path("/sys/fs/cgroup")
    for top in (*mount.glob(f"*/{name}"), mount / name):
        for folder in sorted(top.rglob("*"), reverse=True):
            if folder.is_dir():
                with contextlib.suppress(OSError):
                    folder.rmdir()
        with contextlib.suppress(OSError):
            top.rmdir()


def _unmount_below(folder: Path) -> None:
    targets = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for target in sorted((t for t in targets if t.startswith(f"{folder}/")), reverse=True):
        subprocess.run(["umount", "--lazy", target], check=False, capture_output=True)
