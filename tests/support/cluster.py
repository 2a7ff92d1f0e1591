"""A real cluster of one node, brought up by the code behind `scripts/up` on a machine of the test's own.

It is a second installation beside whatever runs here: its own network namespace, folders below a prefix, containerd and
cgroups. kubectl is the unmodified one.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from tests.support import images
from tests.support.host import OUTSIDE, Host, host

T = TypeVar("T")
WEB_IMAGE = "wherry.test/web:1"
WEB2_IMAGE = "wherry.test/web:2"
BUSYBOX = "wherry.test/busybox:1"
NODE = "node1"
GROUPS = ("addons", "bundle", "certs", "image", "snapshot", "store", "token")
"""Commands of two words."""

# Answers with the pod's name and the image's version, so that a test sees who answered.
_WEB = b"""#!/bin/sh
mkdir -p /tmp/www/cgi-bin
printf '#!/bin/sh\\nprintf "Content-Type: text/plain\\\\r\\\\n\\\\r\\\\n$(hostname) VERSION\\\\n"\\n' > /tmp/www/cgi-bin/who
chmod +x /tmp/www/cgi-bin/who
echo "$(hostname) VERSION" > /tmp/www/index.html
trap 'kill $child; exit 0' TERM
httpd -f -v -p 80 -h /tmp/www &
child=$!
wait $child
"""


class Cluster:
    """The running cluster, seen from one of its machines (its only one, but for machines.py)."""

    def __init__(self, machine: Host, prefix: Path, node: str = NODE) -> None:
        self.host, self.prefix, self.node = machine, prefix, node
        self.kubeconfig = prefix / "etc/wherry/admin.kubeconfig"
        self.installation: Path | None = None
        """Folder that scripts/install filled, whose program is used instead of this checkout's."""

    # -- commands -------------------------------------------------------------------------------------------------
    def wherry(
        self,
        *arguments: str,
        check: bool = True,
        timeout: float = 180,
        env: dict[str, str] | None = None,
        installation: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        environment = {"COLUMNS": "200", **(env or {})}
        folder = installation or self.installation
        if folder is None:
            program = [sys.executable, "-m", "wherry.main"]
            environment.setdefault("PYTHONPATH", str(Path(__file__).resolve().parents[2]))
        else:
            program = [str(folder / "bin/wherry")]
        command, *rest = arguments
        group = [command, rest.pop(0)] if command in GROUPS else [command]
        argv = [*program, *group, "--prefix", str(self.prefix), *rest]
        return self.host.run(*argv, check=check, timeout=timeout, env=environment)

    def up(self, *options: str, env: dict[str, str] | None = None) -> str:
        """Bring the cluster up and return what was printed; its daemons inherit the environment."""
        return self.wherry("up", *self.identity(), *options, env=env).stdout

    def identity(self) -> list[str]:
        """The options that `up` and `join` take on this machine."""
        resolv = self.prefix / "resolv.conf"
        resolv.write_text(f"nameserver {OUTSIDE}\n")
        return ["--node-name", self.node, "--node-ip", self.host.address, "--resolv-conf", str(resolv)]

    def kubectl(
        self, *arguments: str, check: bool = True, input: str | None = None, timeout: float = 180
    ) -> subprocess.CompletedProcess[str]:
        return self.host.run(*self.kubectl_argv(*arguments), check=check, input=input, timeout=timeout)

    def kubectl_argv(self, *arguments: str) -> list[str]:
        cache = self.prefix / "kube-cache"
        return ["kubectl", f"--kubeconfig={self.kubeconfig}", f"--cache-dir={cache}", *arguments]

    def get(self, *arguments: str) -> Any:
        """`kubectl get ... -o json`."""
        return json.loads(self.kubectl("get", *arguments, "-o", "json").stdout)

    def http(self, address: str, path: str = "/", timeout: int = 10) -> str:
        """GET from the node; "" where nobody answers. What answers is checked by content, never by connecting alone."""
        done = self.curl(address, path, timeout)
        return done.stdout.strip() if done.returncode == 0 else ""

    def curl(self, address: str, path: str = "/", timeout: int = 10) -> subprocess.CompletedProcess[str]:
        """GET from the node, and return curl's exit code, output and error."""
        return self.host.run("curl", "-sS", "--max-time", str(timeout), f"http://{address}{path}", check=False)

    # -- images ---------------------------------------------------------------------------------------------------
    def load_usual(self) -> None:
        """Load the images that tests run."""
        self.load(web_image(WEB_IMAGE, "v1"), web_image(WEB2_IMAGE, "v2"), images.busybox(BUSYBOX))

    def load(self, *what: images.Image) -> None:
        with tempfile.TemporaryDirectory(dir=self.prefix) as folder:
            self.wherry("image", "load", str(images.archive(Path(folder) / "images.tar", what)))

    def ctr(self, *arguments: str, check: bool = True) -> str:
        socket = self.prefix / "run/wherry/containerd.sock"
        return self.host.run("ctr", "--address", str(socket), "--namespace", "k8s.io", *arguments, check=check).stdout

    # -- daemons --------------------------------------------------------------------------------------------------
    def pid(self, daemon: str) -> int:
        return int((self.prefix / f"run/wherry/{daemon}.pid").read_text())

    def log(self, daemon: str) -> str:
        path = self.prefix / f"var/log/wherry/{daemon}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def kill(self, daemon: str, signal: int = 9) -> int:
        """Kill a daemon and wait until the supervisor has started it anew; return the new process ID."""
        before = self.pid(daemon)
        os.kill(before, signal)

        def restarted() -> int | None:
            with contextlib.suppress(OSError, ValueError):
                now = self.pid(daemon)
                return now if now != before else None
            return None

        return eventually(restarted, f"{daemon} starts again")

    def remove(self) -> None:
        """Take the machine's part of the cluster away."""
        if keep := os.environ.get("WHERRY_KEEP_LOGS"):
            logs = self.prefix / "var/log/wherry"
            if logs.exists():
                shutil.copytree(logs, Path(keep) / self.host.name, dirs_exist_ok=True)
        self.wherry("reset", "--yes", check=False)
        shutil.rmtree(self.prefix, ignore_errors=True)


def web_image(name: str, version: str) -> images.Image:
    script = _WEB.replace(b"VERSION", version.encode())
    return images.Image(name, entrypoint=["sh", "/serve"], command=(), files={"serve": script})


@contextlib.contextmanager
def prefix(name: str) -> Iterator[Path]:
    """Make the folder that a cluster's folders are below, and remove it."""
    made = Path(tempfile.mkdtemp(prefix=f"{name}-", dir="/tmp"))
    made.chmod(0o711)  # as / is: pods with users of their own go through it
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


@contextlib.contextmanager
def cluster(name: str, below: Path | None = None) -> Iterator[Cluster]:
    """Bring a cluster up and take it away again; `below` is a folder that was prepared for it."""
    with contextlib.ExitStack() as stack:
        folder = below or stack.enter_context(prefix(name))
        machine = stack.enter_context(host(name))
        yield stack.enter_context(cluster_on(machine, folder))


@contextlib.contextmanager
def cluster_on(machine: Host, folder: Path, *options: str, env: dict[str, str] | None = None) -> Iterator[Cluster]:
    """Bring a cluster up on a machine and take it away again; the options and the environment are those of `up`."""
    made = Cluster(machine, folder)
    try:
        made.up(*options, env=env)
        made.load_usual()
        yield made
    finally:
        made.remove()


def eventually(look: Callable[[], T | None], what: str, seconds: float = 60, every: float = 0.1) -> T:
    """Look until there is something to see; fail with what was waited for and what was seen last."""
    end = time.monotonic() + seconds
    last: Any = None
    while True:
        try:
            last = look()
        except (AssertionError, LookupError) as error:  # a part of a status that is not written yet is one to wait for
            last = error
        else:
            if last:
                return last
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds:g} s: {what} (last seen: {last!r})")
        time.sleep(every)
