"""containerd killed while it starts and ends sandboxes: a sweep leaves nothing of what it forgot, and everything else."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.cgroups.cgroupfs import CgroupFS
from agent.config import OwnContainerd
from agent.metrics.counters import Counter
from agent.orphans import machine, sweep
from agent.orphans.machine import ADDRESS, CONTAINER, LEASE, NETNS, SHIM
from agent.orphans.sweep import Sweep
from agent.volumes.mounts import mount_points
from cri.client import Client
from cri.errors import CRIError
from cri.messages import api
from kube.clock import SYSTEM
from tests.support.containerd import CNI_PLUGINS, Containerd, start_containerd
from tests.support.images import BUSYBOX_IMAGE

KILLS, AT_ONCE = 14, 3
SECONDS = 0.5
"""The start of some sandboxes at once takes about as long."""
RUNC = Path("/run/containerd/runc/k8s.io")


@pytest.fixture
async def containerd() -> AsyncIterator[Containerd]:
    with start_containerd(f"orphans-{os.getpid()}") as daemon:
        yield daemon


def own(daemon: Containerd) -> OwnContainerd:
    return OwnContainerd(
        socket=daemon.socket,
        root=daemon.root,
        state=daemon.folder / "state",
        reservations=daemon.folder / "ipam/test",
        network=daemon.folder / "net.d/10-test.conflist",
        plugins=(Path(CNI_PLUGINS),),
    )


def sandbox(daemon: Containerd, name: str) -> api.PodSandboxConfig:
    metadata = api.PodSandboxMetadata(name=name, uid=name, namespace="default")
    linux = api.LinuxPodSandboxConfig(cgroup_parent=f"/{daemon.name}/{name}")
    return api.PodSandboxConfig(metadata=metadata, linux=linux, log_directory=str(daemon.folder / "logs"))


async def start(daemon: Containerd, client: Client, name: str) -> str:
    """Start a sandbox with a container; return the sandbox's ID."""
    config = sandbox(daemon, name)
    made = await client.runtime.run_pod_sandbox(config)
    container = api.ContainerConfig(
        metadata=api.ContainerMetadata(name="c"),
        image=api.ImageSpec(image=BUSYBOX_IMAGE),
        command=["sleep", "1000"],
        log_path="c.log",
    )
    await client.runtime.start_container(await client.runtime.create_container(made, container, config))
    return made


async def end(client: Client, ids: set[str]) -> None:
    """Stop and remove sandboxes."""
    for id in ids:
        await client.runtime.stop_pod_sandbox(id)
        await client.runtime.remove_pod_sandbox(id)


async def answers(client: Client) -> None:
    """Wait until CRI has read what there is."""
    async with asyncio.timeout(20):
        while True:
            try:
                return await _requested(client)
            except CRIError:
                await asyncio.sleep(0.05)


async def _requested(client: Client) -> None:
    await client.runtime.status()
    await client.runtime.list_pod_sandboxes()


async def listed(client: Client) -> set[str]:
    return {s.id for s in await client.runtime.list_pod_sandboxes()}


def left(daemon: Containerd) -> dict[str, list[str]]:
    """List what sandboxes have on the machine; looked for by other means than the sweep's."""
    of = own(daemon)
    arguments = [(p.parent, p.read_bytes()) for p in Path("/proc").glob("[0-9]*/cmdline") if p.exists()]
    shims = [(p.name, text) for p, text in arguments if b"containerd-shim" in text and bytes(of.socket) in text]
    ids = [text.split(b"\0")[text.split(b"\0").index(b"-id") + 1].decode() for _, text in shims]
    links = daemon.netns_run("ip", "-brief", "link").split("\n")
    cgroups = [path for root in Path("/sys/fs/cgroup").glob(f"*/{daemon.name}") for path in root.glob("*/*/")]
    snapshots = [line.split() for line in daemon.ctr("snapshots", "ls").stdout.splitlines()]
    return {
        "shims": sorted(ids),
        "bundles": sorted(p.name for p in of.bundles.glob("*")),
        "work": sorted(p.name for p in of.work.glob("*")),
        "mounts": sorted(mount_points(daemon.folder)),
        "namespaces": sorted(str(p) for p in of.namespaces.glob("*")),
        "addresses": sorted(p.name for p in of.reservations.glob("*.*.*.*")),
        "links": sorted(line.split("@")[0] for line in links if line.startswith("veth")),
        "cgroups": sorted({p.name for p in cgroups}),
        "snapshots": sorted(words[0] for words in snapshots if words and words[-1] == "Active"),
        "containers": daemon.ctr("containers", "ls", "-q").stdout.split(),
        "leases": daemon.ctr("leases", "ls", "-q").stdout.split(),
    }


def tasks(daemon: Containerd) -> list[str]:
    return sorted(daemon.ctr("tasks", "ls").stdout.splitlines())


def remembered(ids: set[str]) -> list[str]:
    """List what runc and libcni, who have one folder for the whole machine, keep of sandboxes."""
    folders = [*RUNC.glob("*"), *Path("/var/lib/cni/results").glob("*")]
    return [str(path) for path in folders if any(id in path.name for id in ids)]


async def test_nothing_is_left_of_sandboxes_that_containerd_was_killed_in(containerd: Containerd) -> None:
    chance, removed = random.Random(7), Counter("removed", "", ("kind",))
    async with Client(containerd.endpoint) as client:
        stays = await start(containerd, client, "stays")
    before = left(containerd)
    tasks_before = tasks(containerd)
    ids: set[str] = set()
    for number in range(KILLS):
        async with Client(containerd.endpoint) as client:
            await answers(client)
            names = [f"{kind}-{number}" for kind in "abc"[:AT_ONCE]]
            starts = [asyncio.create_task(client.runtime.run_pod_sandbox(sandbox(containerd, name))) for name in names]
            ending = asyncio.create_task(end(client, await listed(client) - {stays}))
            await asyncio.sleep(chance.uniform(0.0, SECONDS))
            containerd.stop(signal.SIGKILL)
            found = await asyncio.gather(*starts, ending, return_exceptions=True)
            assert all(isinstance(answer, (str, CRIError, type(None))) for answer in found), found
            ids |= {answer for answer in found if isinstance(answer, str)}
            ids |= {path.name for path in own(containerd).bundles.glob("*")} - set(before["bundles"])
        containerd.start()
    async with Client(containerd.endpoint) as client:
        await answers(client)
        ids |= await listed(client) - {stays}
        await end(client, await listed(client) - {stays})
        leftover = left(containerd)
        assert leftover["shims"] != before["shims"], "the kills hit nothing: this test would show nothing"
        await Sweep(own(containerd), client, 120.0, clock=SYSTEM, removed=removed).sweep()
        assert removed.value(SHIM) > 0 and removed.value(LEASE) == len(leftover["leases"])
        for name in ["abc"[i] + f"-{n}" for i in range(AT_ONCE) for n in range(KILLS)]:
            CgroupFS().remove(f"{containerd.name}/{name}")  # a pod's cgroup is the agent's own to remove
        assert left(containerd) == before
        assert remembered(ids) == []
        assert tasks(containerd) == tasks_before, "what runs was not touched"


SLOW = """#!/bin/sh
cat > /dev/null
case $CNI_COMMAND in
VERSION) echo '{"cniVersion": "1.0.0", "supportedVersions": ["1.0.0"]}' ;;
ADD) touch %s; sleep 2; echo '{"cniVersion": "1.0.0"}' ;;
esac
"""
"""The last plugin of a network: when it is asked, the others have done their work."""


def slow_network(daemon: Containerd) -> tuple[OwnContainerd, Path]:
    """Give a containerd such a network; return where it has its things, and a file that is there once ADD has come so far."""
    plugins, reached = daemon.folder / "plugins", daemon.folder / "reached"
    plugins.mkdir()
    for plugin in Path(CNI_PLUGINS).iterdir():
        (plugins / plugin.name).symlink_to(plugin)
    (plugins / "slow").write_text(SLOW % reached)
    (plugins / "slow").chmod(0o755)
    of = replace(own(daemon), plugins=(plugins,))
    network = json.loads(of.network.read_text())
    network["plugins"].append({"type": "slow"})
    of.network.write_text(json.dumps(network))
    config = daemon.folder / "config.toml"
    config.write_text(config.read_text().replace(f'"{CNI_PLUGINS}"', f'"{plugins}"'))
    daemon.restart()
    return of, reached


@pytest.mark.parametrize("restarted", [False, True])
async def test_containers_that_cri_does_not_list_are_removed_with_their_snapshots(
    containerd: Containerd, restarted: bool
) -> None:
    """CRI creates a container in containerd before it lists it; a disk that fails then keeps it from deleting it."""
    removed = Counter("removed", "", ("kind",))
    async with Client(containerd.endpoint) as client:
        await start(containerd, client, "listed")
    before = left(containerd)
    containerd.ctr("containers", "create", "--label", "io.cri-containerd.kind=container", BUSYBOX_IMAGE, "1" * 64)
    containerd.ctr("containers", "create", BUSYBOX_IMAGE, "by-hand")
    if restarted:
        containerd.restart()
    async with Client(containerd.endpoint) as client:
        await answers(client)
        sweeps = Sweep(own(containerd), client, 30.0, clock=SYSTEM, removed=removed)
        if not restarted:
            await sweeps.sweep()
            await sweeps.sweep()
            assert "1" * 64 in left(containerd)["containers"], "its creation may be under way"
        await sweeps.sweep()
    assert removed.value(CONTAINER) == 1
    containerd.ctr("containers", "delete", "by-hand")
    assert left(containerd) == before


async def test_a_sandbox_that_had_its_network_alone_gives_it_back(containerd: Containerd) -> None:
    removed = Counter("removed", "", ("kind",))
    of, reached = slow_network(containerd)
    before = left(containerd)
    async with Client(containerd.endpoint) as client:
        await answers(client)
        start = asyncio.create_task(client.runtime.run_pod_sandbox(sandbox(containerd, "a")))
        async with asyncio.timeout(20):
            while not reached.exists():
                await asyncio.sleep(0.01)
        containerd.stop(signal.SIGKILL)
        await asyncio.gather(start, return_exceptions=True)
    containerd.start()
    # containerd 1.6 notes a sandbox down before it makes the network. Here it is as if it had not come to it.
    known = set(containerd.ctr("containers", "ls", "-q").stdout.split())
    for name in known - set(before["containers"]):
        containerd.ctr("containers", "delete", name)
    containerd.restart()
    async with Client(containerd.endpoint) as client:
        await answers(client)
        assert await listed(client) == set(), "CRI does not know of it"
        leftover = left(containerd)
        assert leftover["addresses"] and leftover["links"] and leftover["namespaces"]
        await Sweep(of, client, 120.0, clock=SYSTEM, removed=removed).sweep()
    assert removed.value(NETNS) == removed.value(ADDRESS) == 1
    assert left(containerd) == before


async def test_a_sandbox_whose_process_has_died_keeps_its_network(containerd: Containerd) -> None:
    removed = Counter("removed", "", ("kind",))
    async with Client(containerd.endpoint) as client:
        made = await client.runtime.run_pod_sandbox(sandbox(containerd, "a"))
        containerd.ctr("tasks", "kill", "-s", "SIGKILL", made)
        async with asyncio.timeout(20):
            while (await client.runtime.pod_sandbox_status(made)).state != api.PodSandboxState.SANDBOX_NOTREADY:
                await asyncio.sleep(0.01)
    before = left(containerd)
    assert before["namespaces"] and before["addresses"]
    containerd.restart()
    by = await asyncio.to_thread(machine.daemon, containerd.socket)
    empty = list(machine.namespaces(own(containerd)))
    assert len(empty) == 1 and empty[0].born < by.began, "nobody is in it, and it is older than containerd"
    async with Client(containerd.endpoint) as client:
        await answers(client)
        await Sweep(own(containerd), client, 120.0, clock=SYSTEM, removed=removed).sweep()
        assert left(containerd)["namespaces"] == before["namespaces"]
        assert left(containerd)["addresses"] == before["addresses"]
        await end(client, {made})
    assert [removed.value(kind) for kind in (NETNS, ADDRESS)] == [0, 0]


async def test_a_process_of_a_container_that_calls_itself_a_shim_is_none(containerd: Containerd) -> None:
    of, name = own(containerd), "containerd-shim"
    by = machine.daemon(of.socket)
    program, script = containerd.folder / name, containerd.folder / "script" / name
    shutil.copy("/bin/sh", program)  # a program of this name, and a script, whose program is the shell
    script.parent.mkdir()
    script.write_text("#!/bin/sh\necho started\nread forever\n")
    script.chmod(0o755)
    options = ["-namespace", "k8s.io", "-id", "ab" * 32, "-address", str(of.socket)]
    argv = [str(program), "-c", "echo started; read forever", *options]
    pipes = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
    forged = await asyncio.create_subprocess_exec("unshare", "--mount", *argv, **pipes)
    same = await asyncio.create_subprocess_exec(*argv, **pipes)
    other = await asyncio.create_subprocess_exec(str(script), *options, **pipes)
    for process in (forged, same, other):
        assert process.stdout is not None and await process.stdout.readline() == b"started\n"
    try:
        assert [item.pid for item in machine.shims(of, by)] == [same.pid]
    finally:
        for process in (forged, same, other):
            process.kill()
            await process.wait()


async def test_a_sandbox_that_is_being_started_is_left_alone(containerd: Containerd) -> None:
    """All at once and again and again, while a sweep follows the other: each sandbox comes to stand."""
    removed = Counter("removed", "", ("kind",))
    async with Client(containerd.endpoint) as client:
        sweeper = Sweep(own(containerd), client, 120.0, clock=SYSTEM, removed=removed)
        for number in range(4):
            starts = [asyncio.create_task(start(containerd, client, f"{kind}-{number}")) for kind in "abc"]
            sweeps = 0
            while not all(task.done() for task in starts):
                sweeper._seen.clear()  # a minute lies between two looks
                await sweeper.sweep()
                sweeps += 1
            made = {task.result() for task in starts}
            assert sweeps > 1 and made <= await listed(client)
            ending = asyncio.create_task(end(client, made))
            while not ending.done():
                sweeper._seen.clear()
                await sweeper.sweep()
            await ending
    assert [removed.value(kind) for kind in sweep._ORDER] == [0] * len(sweep._ORDER)
