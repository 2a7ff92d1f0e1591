"""Three members of etcd for a soak's cluster, with the faults of a store that is elsewhere: compaction and leader changes.

The members run in the network namespace of the cluster's machine and keep their data on the machine's own disk.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

from bench.soak_faults import Fault
from tests.support.etcd import Etcd, Member
from tests.support.host import Host
from tests.support.netns import Namespace

MEMBERS, PORT = 3, 23790
STOP_SECONDS = (1.0, 20.0)
COMPACT_SECONDS = (0.0, 0.0)
START_SECONDS = 60.0


class Members:
    """The running members, seen from the machine."""

    def __init__(self, cluster: Etcd, machine: Host) -> None:
        self._etcd, self._machine = cluster, machine

    @property
    def options(self) -> list[str]:
        """The options of `wherry up`."""
        return ["--store", "etcd", "--etcd-servers", ",".join(self._etcd.servers)]

    def compact(self) -> None:
        """Compact etcd's history up to the newest revision, beneath all watches."""
        text = self._etcdctl("get", "compact_rev_key", "--write-out=fields", "--consistency=s")
        revision = next(line.split(":")[1].strip() for line in text.splitlines() if line.startswith('"Revision"'))
        self._etcdctl("compact", revision, check=False)

    def leader(self) -> Member:
        """Return the member that leads; the first one where none answers."""
        for member in self._etcd.members:
            url = f"http://{member.address}:{member.client_port}"
            text = self._etcdctl("endpoint", "status", "--write-out=fields", server=url, check=False)
            fields = dict(line.split(" : ", 1) for line in text.splitlines() if " : " in line)
            if fields and fields.get('"MemberID"') == fields.get('"Leader"'):
                return member
        return self._etcd.members[0]

    def kinds(self) -> dict[str, Fault]:
        """Return the faults. None loses a write; while there is no leader, nobody is served."""
        stopped: list[Member] = []

        def stop() -> None:
            stopped.append(self.leader())
            process = stopped[-1].process
            if process is not None:
                process.send_signal(signal.SIGSTOP)

        def resume() -> None:
            while stopped:
                process = stopped.pop().process
                if process is not None:
                    process.send_signal(signal.SIGCONT)

        def kill() -> None:
            self.leader().kill()

        def start() -> None:
            for member in self._etcd.members:
                if member.process is None:
                    member.start()

        return {
            "compact etcd": Fault("etcd history", self.compact, lambda: None, COMPACT_SECONDS),
            "stop etcd's leader": Fault("etcd", stop, resume, STOP_SECONDS),
            "kill etcd's leader": Fault("etcd", kill, start, STOP_SECONDS),
        }

    def _etcdctl(self, *arguments: str, server: str = "", check: bool = True) -> str:
        servers = server or ",".join(self._etcd.servers)
        argv = ["etcdctl", "--endpoints", servers, "--command-timeout=5s", *arguments]
        return self._machine.run(*argv, env={"ETCDCTL_API": "3"}, check=check).stdout


@contextlib.contextmanager
def members(machine: Host, folder: Path) -> Iterator[Members]:
    """Run the members on a machine, with their data in a folder."""
    ports = [(PORT + 2 * number, PORT + 2 * number + 1) for number in range(MEMBERS)]
    made = Etcd(folder, MEMBERS, tls=False, ports=ports)
    for member in made.members:
        member.enter = machine.enter
    try:
        Namespace(machine.name).inside(made.start, START_SECONDS)
        yield Members(made, machine)
    finally:
        made.stop()
