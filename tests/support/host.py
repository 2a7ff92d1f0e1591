"""A machine of the test's own: a network namespace with one uplink that leads nowhere.

The uplink ends in a second namespace that forwards nothing, so that no packet for a Service or pod can leave, and yet the
machine has an address and a default route as a real one has.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

ADDRESS, OUTSIDE, PREFIX = "172.30.0.2", "172.30.0.1", 24


class Host:
    """One such machine; `run` executes in its network namespace."""

    def __init__(self, name: str) -> None:
        self.name, self.outside = name, f"{name}-out"

    @property
    def enter(self) -> list[str]:
        """The command prefix that puts a process into the namespace and leaves everything else as it is."""
        return ["nsenter", f"--net=/var/run/netns/{self.name}"]

    def run(
        self,
        *argv: str,
        check: bool = True,
        input: str | None = None,
        timeout: float = 120,
        env: dict[str, str] | None = None,
        outside: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the machine (or `outside`, at the other end of its uplink); its failure shows its output."""
        enter = ["nsenter", f"--net=/var/run/netns/{self.outside}"] if outside else self.enter
        done = subprocess.run(
            [*enter, *argv],
            capture_output=True,
            text=True,
            errors="replace",
            input=input,
            stdin=subprocess.DEVNULL if input is None else None,
            timeout=timeout,
            env={**os.environ, **(env or {})},
            check=False,
        )
        if check and done.returncode != 0:
            raise AssertionError(f"{shlex.join(argv)}: status {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def popen(self, *argv: str, stdout: int | None = subprocess.PIPE) -> subprocess.Popen[str]:
        """Start a command in the machine."""
        return subprocess.Popen(
            [*self.enter, *argv], stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.STDOUT, text=True
        )


@contextlib.contextmanager
def host(name: str) -> Iterator[Host]:
    """Make a machine and take it away again, also after a failure. The name must be free."""
    machine = Host(name)
    try:
        for namespace in (machine.name, machine.outside):
            _ip("netns", "add", namespace)
            _ip("-n", namespace, "link", "set", "lo", "up")
        _ip("-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", machine.outside)
        _ip("-n", name, "address", "add", f"{ADDRESS}/{PREFIX}", "dev", "eth0")
        _ip("-n", machine.outside, "address", "add", f"{OUTSIDE}/{PREFIX}", "dev", "eth0")
        for namespace in (machine.name, machine.outside):
            _ip("-n", namespace, "link", "set", "eth0", "up")
        _ip("-n", name, "route", "add", "default", "via", OUTSIDE)
        yield machine
    finally:
        for namespace in (machine.name, machine.outside):
            _end_processes(namespace)
            subprocess.run(["ip", "netns", "delete", namespace], capture_output=True, check=False)


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {shlex.join(arguments)}: {done.stderr}"


def _end_processes(namespace: str) -> None:
    """End what still runs in the namespace: all of it was started by the test that owns it."""
    try:
        inode = Path("/var/run/netns", namespace).stat().st_ino
    except OSError:
        return
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (folder / "ns/net").stat().st_ino == inode:
                os.kill(int(folder.name), 9)
