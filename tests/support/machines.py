"""A cluster of several machines: the first is brought up with `wherry up`, the others come in with `wherry join`.

Each machine is a network namespace on a switch (host.py) with folders, containerd, agent and proxy of its own. One can lose
its power, which kills everything in it and forgets what lay in memory, and boot again; be frozen and thawed; and be cut from
another one. Every process is ended by its own ID.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.support.cluster import Cluster, eventually
from tests.support.etcd import Etcd
from tests.support.host import Host, hosts
from wherry.layout import Layout

_MNT_DETACH = 2


class Machine(Cluster):
    """One machine of the cluster. kubectl works from the control plane's machines alone."""

    @property
    def layout(self) -> Layout:
        return Layout(self.prefix)

    def join(self, first: Machine, token: str, ca_hash: str, *options: str) -> None:
        """Make this machine a node of the first one's cluster; returns once it is Ready."""
        server = f"https://{first.host.address}:6443"
        credentials = ("--token", token, "--discovery-token-ca-cert-hash", ca_hash)
        # `wherry join SERVER` takes its options after the argument.
        self.wherry("join", server, *credentials, *self.identity(), *options)

    # -- faults ---------------------------------------------------------------------------------------------------
    def power_off(self) -> None:
        """Cut the uplink and kill everything at once, containers too; only what is on the disk stays."""
        self.host.plug(False)
        plan = self.layout.run / "daemons.json"
        if plan.exists():
            shutil.copyfile(plan, self._plan)
        # Whoever starts processes goes first.
        for _ in range(50):
            alive = self.processes()
            if not alive:
                break
            for pid in alive:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            eventually(lambda gone=alive: not set(gone) & set(self.processes()), "the killed are gone")  # type: ignore[misc]
        self._forget_memory()
        self.host.delete()

    def power_on(self) -> None:
        """Boot: a network namespace as new, with the old addresses, and the daemons that were to run."""
        self.host.make()
        self.layout.run.mkdir(parents=True, exist_ok=True)
        shutil.move(self._plan, self.layout.run / "daemons.json")
        with (self.layout.logs / "supervisor.log").open("ab") as log:
            subprocess.Popen(
                [*self.host.enter, sys.executable, "-m", "wherry.supervisor", str(self.layout.run / "daemons.json")],
                cwd=Path(__file__).resolve().parents[2],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def freeze(self, *daemons: str) -> list[int]:
        """Stop daemons, or without a name everything on the machine, where they are; return their IDs for `thaw`."""
        pids = [self.pid(daemon) for daemon in daemons] or self.processes()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        return pids

    def thaw(self, pids: Iterable[int]) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def processes(self) -> list[int]:
        """Return all that runs on the machine: the daemons, the shims, and the containers by their cgroups."""
        found = set(self.host.processes())
        inside = f":{self.layout.cgroup}/".encode()
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if inside in (folder / "cgroup").read_bytes():
                    found.add(int(folder.name))
        return sorted(pid for pid in found if not _zombie(pid))

    @property
    def _plan(self) -> Path:
        return self.prefix / "daemons.json"

    def _forget_memory(self) -> None:
        """Remove what a reboot does: mounts, everything in /run, cgroups."""
        libc = ctypes.CDLL(None, use_errno=True)
        points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        for point in sorted((p for p in points if p.startswith(f"{self.prefix}/")), reverse=True):
            libc.umount2(point.encode().decode("unicode_escape").encode(), _MNT_DETACH)
        shutil.rmtree(self.layout.run, ignore_errors=True)
        for controller in Path("/sys/fs/cgroup").glob("*"):
            for inner, _, _ in os.walk(controller / self.layout.cgroup.strip("/"), topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(inner)


class Machines:
    """The cluster: a list of its machines, and kubectl on the first."""

    def __init__(self, machines: list[Machine]) -> None:
        self.all = machines
        self.first = machines[0]
        self.kubectl, self.get = self.first.kubectl, self.first.get
        self.token = self.ca_hash = ""
        """Credentials of joining: a token, and the hash of the CA."""

    def __getitem__(self, index: int) -> Machine:
        return self.all[index]

    def __iter__(self) -> Iterator[Machine]:
        return iter(self.all)

    def __len__(self) -> int:
        return len(self.all)

    def by_node(self, name: str) -> Machine:
        """Return the machine of a node."""
        return next(machine for machine in self.all if machine.node == name)

    def node_ready(self, name: str) -> bool:
        conditions = self.get("node", name)["status"]["conditions"]
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    def wait_ready(self, *names: str, seconds: float = 60) -> None:
        """Wait until nodes (all by default) are Ready."""
        for name in names or [machine.node for machine in self.all]:
            eventually(lambda n=name: self.node_ready(n), f"node {name} is Ready", seconds)  # type: ignore[misc]

    def cut(self, one: Machine, other: Machine) -> None:
        """Let nothing pass between two machines."""
        one.host.switch.cut(one.host, other.host)

    def heal(self, one: Machine, other: Machine) -> None:
        one.host.switch.heal(one.host, other.host)


@contextlib.contextmanager
def machines(
    name: str,
    links: tuple[int, ...] = (0, 0, 0),
    *,
    up: tuple[str, ...] = (),
    join: bool = True,
    each: tuple[str, ...] = (),
) -> Iterator[Machines]:
    """Make a cluster with a machine for each of `links` (see host.Switch) and take it away again.

    `up` are more options for the first machine, `each` for every one; with `join` False the others are machines without Wherry.
    """
    with bare_machines(name, links) as made:
        printed = made.first.up(*up, *each)
        if join:
            made.token, made.ca_hash = credentials(printed)
            at_once(lambda machine: _join(made, machine, *each), made.all)
        yield made


@contextlib.contextmanager
def control_planes(
    name: str, directory: Path, prepare: Callable[[Machines], None] = lambda _: None
) -> Iterator[tuple[Machines, Etcd]]:
    """Make three machines that are all members of the control plane, each with a member of etcd and its own node.

    `prepare` is called before Wherry's commands run.
    """
    with contextlib.ExitStack() as stack:
        found = stack.enter_context(hosts(name, (0, 0, 0)))
        etcd = Etcd(directory, 3, tls=True, machines=found)
        # After the machines' daemons: an API server whose etcd is gone is killed only after the 20 s that it has to stop.
        stack.callback(etcd.stop)
        made = stack.enter_context(_on(found))
        prepare(made)
        for member in etcd.members:
            member.start()
        files = {"cafile": etcd.ca_file, "certfile": etcd.cert_file, "keyfile": etcd.key_file}
        options = [f"--etcd-{name}={path}" for name, path in files.items()]
        made.first.up("--store=etcd", f"--etcd-servers={','.join(etcd.servers)}", *options)
        words = made.first.wherry("token", "create", "--control-plane").stdout.split()
        join = words[words.index("join") :]

        def bring_in(machine: Machine) -> None:
            if machine is not made.first:
                machine.wherry(*join, *machine.identity())
            machine.load_usual()

        at_once(bring_in, made.all)
        yield made, etcd


@contextlib.contextmanager
def bare_machines(name: str, links: tuple[int, ...]) -> Iterator[Machines]:
    """Make machines without Wherry, and take them away with what was installed."""
    with hosts(name, links) as found, _on(found) as made:
        yield made


@contextlib.contextmanager
def _on(found: list[Host]) -> Iterator[Machines]:
    """Make folders for what is installed on machines, and remove it."""
    made = Machines([_machine(host, number) for number, host in enumerate(found, 1)])
    try:
        yield made
    finally:
        at_once(Machine.remove, made.all)


def at_once(work: Callable[[Machine], Any], some: Iterable[Machine]) -> None:
    """Do something on several machines side by side; raises the first failure."""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        for done in [pool.submit(work, machine) for machine in some]:
            done.result()


def _join(made: Machines, machine: Machine, *options: str) -> None:
    if machine is not made.first:
        machine.join(made.first, made.token, made.ca_hash, *options)
    machine.load_usual()


def credentials(printed: str) -> tuple[str, str]:
    """Read token and hash from the command that `wherry up` prints for other machines."""
    words = " ".join(printed.split())
    token = re.search(r"--token[ =](\S+)", words)
    ca_hash = re.search(r"sha256:[0-9a-f]{64}", words)
    assert token and ca_hash, f"`wherry up` printed no command to join with:\n{printed}"
    return token[1], ca_hash[0]


def _machine(host: Host, number: int) -> Machine:
    prefix = Path(tempfile.mkdtemp(prefix=f"{host.name}-", dir="/tmp"))
    prefix.chmod(0o711)  # as / is: pods with users of their own go through it
    return Machine(host, prefix, f"node{number}")


def _zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True
