"""Orphans on a machine: only what containerd cannot be creating now is removed."""

from __future__ import annotations

import asyncio
import errno
import json
import tracemalloc
from pathlib import Path
from typing import cast

import pytest

from agent.config import OwnContainerd
from agent.metrics.counters import Counter
from agent.orphans import cni, machine, rules
from agent.orphans.machine import ADDRESS, BUNDLE, LEASE, NETNS, SHIM, Daemon, Item
from agent.orphans.rules import Owners
from agent.orphans.sweep import PERIOD_SECONDS, Sweep
from cri.client import Client
from cri.errors import UnavailableError
from tests.support.clock import FakeClock

ONE, OTHER = "1" * 64, "2" * 64
STARTED = 1000.0


def shim(owner: str, born: float, pid: int = 7, ticks: int = 1) -> Item:
    return Item(SHIM, str(pid), born, owner, pid, ticks)


def own(folder: Path) -> OwnContainerd:
    return OwnContainerd(
        socket=folder / "sock",
        root=folder / "root",
        state=folder / "state",
        reservations=folder / "ipam",
        network=folder / "net.conflist",
        plugins=(folder,),
        results=folder / "results",
    )


def test_what_has_an_owner_stays() -> None:
    items = [
        shim(ONE, 1.0),
        Item(BUNDLE, ONE, 1.0, ONE),
        Item(ADDRESS, "10.0.0.2", 1.0, ONE),
        Item(NETNS, "/n/cni-1", 1.0),
    ]
    owners = Owners(frozenset({ONE}), frozenset({"/n/cni-1"}))
    assert rules.ownerless(items, owners) == []
    assert rules.ownerless(items, Owners(frozenset({OTHER}))) == items


def test_what_is_older_than_containerd_goes_at_the_first_look_and_what_is_younger_does_not() -> None:
    old, young = shim(ONE, STARTED - 0.1), shim(OTHER, STARTED + 0.1, pid=8)
    seen = rules.seen_again([old, young], {})
    assert rules.abandoned(seen, STARTED, looks=6) == [old]


def test_what_is_younger_goes_when_no_start_can_be_under_way_any_more() -> None:
    item, lease = shim(ONE, STARTED + 1), Item(LEASE, "a", STARTED + 1)
    looks = rules.sweeps_needed(request_timeout=120.0, period=60.0)
    assert (looks - 1) * 60.0 > 2 * 120.0
    seen: dict[Item, int] = {}
    for look in range(1, looks + 1):
        # The moment of a start is read by a clock that runs on: it is never quite the same.
        seen = rules.seen_again([shim(ONE, STARTED + 1 + look / 1e6), lease], seen)
        assert rules.abandoned(seen, STARTED, looks) == ([item] if look == looks else [])


def test_a_look_at_which_it_had_an_owner_begins_the_count_anew() -> None:
    item = shim(ONE, STARTED + 1)
    seen = rules.seen_again([], rules.seen_again([item], {}))
    assert rules.seen_again([item], seen) == {item: 1}
    assert rules.seen_again([shim(ONE, STARTED + 1, ticks=2)], {item: 5}) == {shim(ONE, 0, ticks=2): 1}, (
        "another process"
    )


def test_what_others_have_in_the_same_folders_is_not_looked_at(tmp_path: Path) -> None:
    of = own(tmp_path)
    for name in (ONE, f".{OTHER}", "by-hand", "..", "x" * 64):
        (of.bundles / name).mkdir(parents=True, exist_ok=True)
    of.reservations.mkdir()
    (of.reservations / "10.0.0.2").write_text(f"{ONE}\r\neth0")
    (of.reservations / "fd00::2").write_text(f"{ONE}\r\neth0")
    (of.reservations / "10.0.0.3").write_text("somebody\r\neth0")
    (of.reservations / "last_reserved_ip.0").write_text("10.0.0.3")
    (of.reservations / "lock").touch()
    assert {(i.name, i.owner) for i in machine.bundles(of)} == {(ONE, ONE), (f".{OTHER}", OTHER)}
    assert {(i.name, i.owner) for i in machine.addresses(of)} == {("10.0.0.2", ONE), ("fd00::2", ONE)}


def test_nothing_is_found_where_no_folder_is(tmp_path: Path) -> None:
    of = own(tmp_path)
    assert [*machine.bundles(of), *machine.namespaces(of), *machine.addresses(of)] == []


def process(
    proc: Path,
    pid: int,
    command_line: bytes,
    *,
    namespace: str = "mnt:[1]",
    users: str = "0 0 0 0",
    program: str = "/usr/bin/containerd-shim-runc-v2",
) -> Path:
    folder = proc / str(pid)
    (folder / "ns").mkdir(parents=True)
    (folder / "exe").symlink_to(program)
    (folder / "status").write_text(
        "Name:\tcontainerd-shim\\nUid:\t0\nUid:\t" + users.replace(" ", "\t") + "\nGid:\t0\n"
    )
    (folder / "ns/mnt").symlink_to(namespace)
    (folder / "comm").write_bytes(b"containerd-shim\n")
    (folder / "stat").write_bytes(b"%d (containerd-shim) S" % pid + b" 5" * 49)
    (folder / "cmdline").write_bytes(command_line)
    return folder


def test_command_lines_of_other_processes_are_read_up_to_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of, proc = own(tmp_path), tmp_path / "proc"
    monkeypatch.setattr(machine, "_PROC", proc)
    line = b"\0".join((b"containerd-shim-runc-v2", b"-id", ONE.encode(), b"-address", bytes(of.socket), b""))
    process(proc, 1, b"containerd\0")
    process(proc, 7, line)
    in_a_container = process(proc, 8, line, namespace="mnt:[2]")
    of_a_user = [process(proc, 10, line, users="65534 65534 65534 65534"), process(proc, 11, line, users="1000 0 0 0")]
    of_another_program = process(proc, 12, line, program="/usr/bin/su")
    process(proc, 13, line, program="/usr/bin/containerd-shim-runc-v2 (deleted)")
    long = process(proc, 9, line)
    with open(long / "cmdline", "r+b") as file:
        file.truncate(1 << 30)  # as prctl(PR_SET_MM_MAP) makes it
    read: list[Path] = []
    monkeypatch.setattr(
        machine.process_files,
        "command_line",
        lambda at, kept=machine.process_files.command_line: read.append(at) or kept(at),
    )
    tracemalloc.start()
    try:
        found = [*machine.shims(of, Daemon(1, 5, 0.0))]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sorted((item.pid, item.owner) for item in found) == [(7, ONE), (13, ONE)]
    assert peak < 4 << 20
    assert not {in_a_container, *of_a_user, of_another_program} & {*read}, "reading it may block, as its process likes"


def test_cni_del_has_the_arguments_of_cni_add() -> None:
    network = {"cniVersion": "1.0.0", "name": "pods", "plugins": []}
    plugin = {"type": "portmap", "snat": True, "capabilities": {"portMappings": True}}
    remembered = {"capabilityArgs": {"portMappings": [{"hostPort": 80}], "dns": {}}, "result": {"ips": []}}
    assert cni.request(plugin, network, remembered) == {
        "type": "portmap",
        "snat": True,
        "name": "pods",
        "cniVersion": "1.0.0",
        "runtimeConfig": {"portMappings": [{"hostPort": 80}]},
        "prevResult": {"ips": []},
    }
    assert cni.request(plugin, network, None) == {
        "type": "portmap",
        "snat": True,
        "name": "pods",
        "cniVersion": "1.0.0",
    }


def test_what_libcni_remembers_leads_from_a_namespace_to_its_sandbox(tmp_path: Path) -> None:
    of = own(tmp_path)
    of.results.mkdir()
    result = (
        '{"containerId": "%s", "result": {"interfaces": [{"name": "veth1"}, {"name": "eth0", "sandbox": "/n/cni-%d"}]}}'
    )
    (of.results / f"pods-{ONE}-eth0").write_text(result % (ONE, 1))
    (of.results / f"pods-{OTHER}-eth0").write_text(result % (OTHER, 2))
    (of.results / f"pods-{'3' * 64}-eth0").write_text('{"containerId"')
    assert cni.sandboxes_in(of, "/n/cni-2") == [OTHER]
    assert [path.name for path, _ in cni.results(of, ONE)] == [f"pods-{ONE}-eth0"]


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "Too many open files"), UnavailableError("containerd starts")])
async def test_a_sweep_that_cannot_read_the_machine_or_the_owners_is_repeated_a_period_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    clock, swept = FakeClock(), list[float]()
    tested = Sweep(own(tmp_path), cast(Client, None), 120.0, clock=clock, removed=Counter("removed", "", ("kind",)))

    async def sweep() -> None:
        swept.append(clock.monotonic())
        if len(swept) == 2:
            raise error

    monkeypatch.setattr(tested, "sweep", sweep)
    task = asyncio.create_task(tested.run())
    await clock.advance(2 * PERIOD_SECONDS)
    assert swept == [0, PERIOD_SECONDS, 2 * PERIOD_SECONDS] and not task.done()
    assert f"scanning for orphans of containerd: {error}" in caplog.text
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(
    ("info", "used"),
    [
        ({"runtimeSpec": {"linux": {"namespaces": [{"type": "network", "path": "/var/run/netns/cni-1"}]}}}, {"cni-1"}),
        (
            {
                "runtimeSpec": {
                    "annotations": {"a": "/var/run/netns/cni-2"},
                    "linux": {"namespaces": [{"type": "pid"}, {"type": "network", "path": "/var/run/netns/cni-1"}]},
                },
                "config": {"annotations": {"a": "/var/run/netns/cni-2"}},
            },
            {"cni-1"},
        ),
        ({"netns": "/var/run/netns/cni-1"}, {"cni-1"}),
        ({"runtimeSpec": {"linux": None}, "netns": "cni-2"}, {"cni-2"}),
        ({"runtimeSpec": {"linux": {"namespaces": ["cni-2"]}}}, {"cni-2"}),
        ({}, set()),
    ],
)
def test_a_namespace_is_used_by_a_sandbox_whose_specification_names_it(info: object, used: set[str]) -> None:
    texts = ["", json.dumps(info), "{"]
    assert rules.namespaces_in_use(texts, ["cni-1", "cni-2", "cni-3"]) == used
