"""Machines of the test's own: network namespaces whose uplinks lead to a switch and nowhere else.

The switch is one more namespace with a bridge (or several, which it routes between). It forwards nothing that is for a
Service or pod and has no way out, so no such packet can leave, and yet each machine has an address and a default route as
a real one has. A machine can be unplugged, and the link between two of them cut.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

ADDRESS, OUTSIDE, PREFIX = "172.30.0.2", "172.30.0.1", 24
"""The first machine's address, and the switch's on the first link."""

_RULES = """
table bridge cut {
    set pairs { type ifname . ifname; }
    chain forward { type filter hook forward priority 0; meta iifname . meta oifname @pairs drop; }
}
table ip routed {
    set cut { type ipv4_addr . ipv4_addr; }
    chain forward {
        type filter hook forward priority 0
        ip saddr . ip daddr @cut drop
        ip saddr 172.30.0.0/16 ip daddr 172.30.0.0/16 accept
        drop
    }
}
"""


class Host:
    """One machine; `run` executes in its network namespace."""

    def __init__(self, name: str, switch: Switch, number: int = 1, link: int = 0) -> None:
        self.name, self.switch, self.link = name, switch, link
        self.port = f"port{number}"
        self.address, self.gateway = f"172.30.{link}.{number + 1}", f"172.30.{link}.1"

    @property
    def enter(self) -> list[str]:
        """The command prefix that puts a process into the namespace and leaves everything else as it is."""
        return _enter(self.name)

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
        enter = _enter(self.switch.name) if outside else self.enter
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

    def make(self) -> None:
        """Make the namespace, with its uplink plugged in."""
        _ip("netns", "add", self.name)
        _ip("-n", self.name, "link", "set", "lo", "up")
        peer = ("peer", "name", self.port, "netns", self.switch.name)
        _ip("-n", self.name, "link", "add", "eth0", "type", "veth", *peer)
        _ip("-n", self.switch.name, "link", "set", self.port, "master", f"br{self.link}", "up")
        _ip("-n", self.name, "address", "add", f"{self.address}/{PREFIX}", "dev", "eth0")
        _ip("-n", self.name, "link", "set", "eth0", "up")
        _ip("-n", self.name, "route", "add", "default", "via", self.gateway)

    def plug(self, plugged: bool) -> None:
        """Plug the uplink in, or pull it out."""
        _ip("-n", self.switch.name, "link", "set", self.port, "up" if plugged else "down")

    def processes(self) -> list[int]:
        """Return what runs in the namespace; pods have namespaces of their own."""
        return _processes(self.name)

    def delete(self) -> None:
        """End what still runs in the namespace, all of which the test that owns it started, and delete it."""
        for pid in self.processes():
            with contextlib.suppress(OSError):
                os.kill(pid, 9)
        # A namespace goes some time after its deletion; its uplink's place must be free at once.
        for gone in (["-n", self.switch.name, "link", "delete", self.port], ["netns", "delete", self.name]):
            subprocess.run(["ip", *gone], capture_output=True, check=False)


class Switch:
    """Switch between machines; each link is a bridge with a network of its own, 172.30.LINK.0/24."""

    def __init__(self, name: str, links: int = 1) -> None:
        self.name, self.links = name, links

    def make(self) -> None:
        _ip("netns", "add", self.name)
        _ip("-n", self.name, "link", "set", "lo", "up")
        for link in range(self.links):
            _ip("-n", self.name, "link", "add", f"br{link}", "type", "bridge")
            _ip("-n", self.name, "address", "add", f"172.30.{link}.1/{PREFIX}", "dev", f"br{link}")
            _ip("-n", self.name, "link", "set", f"br{link}", "up")
        # What stays on one link is not forwarded: pods of machines there reach each other directly.
        bridged = [*_enter(self.name), "sysctl", "-qw", "net.bridge.bridge-nf-call-iptables=0"]
        subprocess.run(bridged, check=False, capture_output=True)
        self._nft(_RULES)
        # What is switched is no business of the rules for what is routed (br_netfilter makes it so).
        self._sysctl("net.bridge.bridge-nf-call-iptables=0", check=False)
        if self.links > 1:
            self._sysctl("net.ipv4.ip_forward=1")

    def _sysctl(self, setting: str, check: bool = True) -> None:
        subprocess.run([*_enter(self.name), "sysctl", "-qw", setting], check=check, capture_output=True)

    def cut(self, one: Host, other: Host) -> None:
        """Let nothing pass between two machines, in either direction."""
        self._between(one, other, "add")

    def heal(self, one: Host, other: Host) -> None:
        self._between(one, other, "delete")

    def _between(self, one: Host, other: Host, action: str) -> None:
        ports = f'"{one.port}" . "{other.port}", "{other.port}" . "{one.port}"'
        addresses = f"{one.address} . {other.address}, {other.address} . {one.address}"
        self._nft(
            f"{action} element bridge cut pairs {{ {ports} }}\n{action} element ip routed cut {{ {addresses} }}\n"
        )

    def _nft(self, script: str) -> None:
        argv = [*_enter(self.name), "nft", "-f", "-"]
        done = subprocess.run(argv, input=script, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{script}: {done.stderr}"

    def delete(self) -> None:
        for pid in _processes(self.name):
            with contextlib.suppress(OSError):
                os.kill(pid, 9)
        subprocess.run(["ip", "netns", "delete", self.name], capture_output=True, check=False)


@contextlib.contextmanager
def hosts(name: str, links: tuple[int, ...]) -> Iterator[list[Host]]:
    """Make a machine for each number in `links`, which says where it is plugged in; take all away again."""
    switch = Switch(f"{name}-out", max(links) + 1)
    made = [Host(f"{name}-{number}", switch, number, link) for number, link in enumerate(links, 1)]
    try:
        switch.make()
        for machine in made:
            machine.make()
        yield made
    finally:
        for machine in made:
            machine.delete()
        switch.delete()


@contextlib.contextmanager
def host(name: str) -> Iterator[Host]:
    """Make one machine and take it away again, also after a failure. The name must be free."""
    with hosts(name, (0,)) as (machine,):
        yield machine


def _enter(namespace: str) -> list[str]:
    return ["nsenter", f"--net=/var/run/netns/{namespace}"]


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {shlex.join(arguments)}: {done.stderr}"


def _processes(namespace: str) -> list[int]:
    found = []
    with contextlib.suppress(OSError):
        inode = Path("/var/run/netns", namespace).stat().st_ino
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (folder / "ns/net").stat().st_ino == inode:
                    found.append(int(folder.name))
    return found
