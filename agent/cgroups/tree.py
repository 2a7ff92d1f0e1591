"""The cgroups above the containers: kubepods, one per QoS class, one per pod; cgroup v1 and v2.

The runtime makes a container's cgroup; the agent makes its parents, so that a pod's limits hold for all its containers
together and CPU time is first shared between classes. On v1 every controller has a tree of its own: values are set
in cpu, memory and pids, and on removal all trees are swept, because runc makes the same path in each. With the systemd
driver they are slices, named after the path, and systemd is asked to set them (slices.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno
import logging
import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from agent.cgroups import qos, slices
from kube.api import core_v1

log = logging.getLogger(__name__)

_MOUNT = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Limits:
    """What a cgroup is given; 0 is no limit. CPU time in microseconds a period, memory in bytes."""

    cpu_shares: int = 0
    cpu_quota: int = 0
    cpu_period: int = 100_000
    memory: int = 0
    pids: int = 0


def is_v2(mount: Path = _MOUNT) -> bool:
    """Tell whether the unified hierarchy is the one in use."""
    return (mount / "cgroup.controllers").exists()


class Cgroups:
    """The cgroup tree of one agent. What is not async touches the kernel for well under a millisecond."""

    def __init__(self, root: str, driver: str, *, mount: Path = _MOUNT) -> None:
        self._mount = self.mount = mount
        self._driver = driver
        self._root = root.strip("/")
        self.v2 = is_v2(mount)
        self._trees = [mount] if self.v2 else _controllers(mount)
        self.swap = self.v2 and any(mount.glob("*/memory.swap.max"))
        """The memory controller bounds swap by itself."""

    # -- names ----------------------------------------------------------------------------------------------------
    def kubepods(self) -> str:
        """Return the cgroup above all pods as a path below the mount."""
        return self._path(["kubepods"])

    def pod_path(self, pod: core_v1.Pod) -> str:
        """Return the pod's cgroup as a path below the mount, whatever the driver."""
        return self._path(_pod_parts(pod))

    def pod_parent(self, pod: core_v1.Pod) -> str:
        """Return what CRI wants as cgroup_parent: a path, or with systemd the slice's name."""
        parts = _pod_parts(pod)
        return _slice(parts) if self._driver == "systemd" else "/" + self._path(parts)

    def _path(self, parts: list[str]) -> str:
        if self._driver != "systemd":
            return self._join(*parts)
        return self._join(*(_slice(parts[: depth + 1]) for depth in range(len(parts))))

    def _join(self, *parts: str) -> str:
        return "/".join(part for part in (self._root, *parts) if part)

    # -- making and setting -----------------------------------------------------------------------------------------
    async def apply(self, path: str, limits: Limits) -> None:
        """Give a cgroup its limits in the driver's way, and with cgroupfs make it where it is missing."""
        if self._driver == "systemd":
            await slices.set_properties(path.rpartition("/")[2], slices.properties(**dataclasses.asdict(limits)))
        else:
            await asyncio.to_thread(self.ensure, path, limits)

    def ensure(self, path: str, limits: Limits) -> None:
        """Make a cgroup where it is missing and set its limits, through the file system."""
        if self.v2:
            self._ensure_v2(path, limits)
        else:
            self._ensure_v1(path, limits)

    async def ensure_pod(self, pod: core_v1.Pod, *, cfs_quota: bool, period_us: int, pids: int) -> None:
        """Make the pod's cgroup and give it the sums of its containers' resources."""
        found = qos.qos_class(pod)
        shares = qos.cpu_shares(qos.pod_request(pod, "cpu")) if found != qos.BEST_EFFORT else qos.MIN_SHARES
        limits = Limits(
            cpu_shares=shares,
            cpu_quota=qos.cpu_quota(qos.pod_limit(pod, "cpu"), period_us) if cfs_quota else 0,
            cpu_period=period_us,
            memory=qos.pod_limit(pod, "memory"),
            pids=max(pids, 0),
        )
        await self.apply(self.pod_path(pod), limits)
        await asyncio.to_thread(self._limit_huge_pages, pod)

    def _limit_huge_pages(self, pod: core_v1.Pod) -> None:
        """Let the pod have the huge pages that it asks for, and no others."""
        folder = (self._mount if self.v2 else self._mount / "hugetlb") / self.pod_path(pod)
        if not self.v2 and (self._mount / "hugetlb").is_dir():
            folder.mkdir(parents=True, exist_ok=True)
        for file in folder.glob("hugetlb.*B.max" if self.v2 else "hugetlb.*B.limit_in_bytes"):
            size = file.name.split(".")[1].removesuffix("B")
            if not size.startswith("rsvd"):
                _write(file, qos.pod_request(pod, f"hugepages-{size}i"))

    async def limit_existing(self, name: str, limits: Limits) -> None:
        """Set those limits that are given on a cgroup that somebody else made. Raise OSError where it is not there."""
        systemd = self._driver == "systemd"
        path = slices.path_of(name) if systemd else self._join(*name.strip("/").split("/"))
        controllers = [self._mount] if self.v2 else [self._mount / part for part in ("cpu", "memory", "pids")]
        for tree in controllers:
            if tree.is_dir() and not (tree / path).is_dir():
                raise FileNotFoundError(str(tree / path))
        if systemd:
            await slices.set_properties(path.rpartition("/")[2], slices.given(**dataclasses.asdict(limits)))
            return
        for tree, given, file, text in (
            (controllers[0], limits.cpu_shares, "cpu.weight" if self.v2 else "cpu.shares", qos.cpu_weight),
            (
                controllers[-2 % len(controllers)],
                limits.memory,
                "memory.max" if self.v2 else "memory.limit_in_bytes",
                int,
            ),
            (controllers[-1], limits.pids, "pids.max", int),
        ):
            if given and tree.is_dir():
                _write(tree / path / file, text(given) if self.v2 else given)

    async def ensure_node(self, limits: Limits) -> None:
        """Make kubepods with what all pods may take together, and the two classes below it."""
        await self.apply(self.kubepods(), limits)
        await self.apply(self._path(["kubepods", "burstable"]), Limits(cpu_shares=qos.MIN_SHARES))
        await self.apply(self._path(["kubepods", "besteffort"]), Limits(cpu_shares=qos.MIN_SHARES))

    async def share_burstable(self, pods: Iterable[core_v1.Pod]) -> None:
        """Give the burstable class the CPU shares that its pods request together."""
        total = sum(qos.pod_request(pod, "cpu") for pod in pods if qos.qos_class(pod) == qos.BURSTABLE)
        await self.apply(self._path(["kubepods", "burstable"]), Limits(cpu_shares=qos.cpu_shares(total)))

    def _ensure_v1(self, path: str, limits: Limits) -> None:
        wanted = {
            "cpu": [
                ("cpu.shares", limits.cpu_shares or qos.MIN_SHARES),
                ("cpu.cfs_period_us", limits.cpu_period if limits.cpu_quota else None),
                ("cpu.cfs_quota_us", limits.cpu_quota or None),
            ],
            "memory": [("memory.limit_in_bytes", limits.memory or None)],
            "pids": [("pids.max", limits.pids or None)],
        }
        for controller, values in wanted.items():
            folder = self._mount / controller / path
            if not (self._mount / controller).is_dir():
                continue
            if not folder.is_dir():
                folder.mkdir(parents=True, exist_ok=True)
                if controller == "memory":
                    _write(folder / "memory.use_hierarchy", 1, quiet=True)
            for file, value in values:
                if value is not None:
                    _write(folder / file, value)

    def _ensure_v2(self, path: str, limits: Limits) -> None:
        folder = self._mount
        for part in path.split("/"):
            _enable_controllers(folder)
            folder = folder / part
            folder.mkdir(exist_ok=True)
        _enable_controllers(folder)
        _write(folder / "cpu.weight", qos.cpu_weight(limits.cpu_shares or qos.MIN_SHARES), quiet=True)
        if limits.cpu_quota:
            _write(folder / "cpu.max", f"{limits.cpu_quota} {limits.cpu_period}")
        if limits.memory:
            _write(folder / "memory.max", limits.memory)
        if limits.pids:
            _write(folder / "pids.max", limits.pids)

    # -- removing -----------------------------------------------------------------------------------------------------
    async def take_away(self, path: str) -> bool:
        """Remove a cgroup in the driver's way, killing what still runs in it; False where it has to be tried again."""
        if self._driver == "systemd":
            return await slices.stop(path.rpartition("/")[2])
        return await asyncio.to_thread(self.remove, path)

    def remove(self, path: str) -> bool:
        """Remove a cgroup with those below it, killing what still runs in it; False where the kernel says busy."""
        gone = True
        for tree in self._trees:
            gone &= _remove_tree(tree / path)
        return gone

    def pod_uids(self) -> dict[str, str]:
        """Return the pods that have a cgroup, by UID, with its path."""
        found: dict[str, str] = {}
        if self._driver == "systemd":
            for tree in self._trees:
                for parts in (["kubepods"], ["kubepods", "burstable"], ["kubepods", "besteffort"]):
                    for folder in (tree / self._path(parts)).glob("kubepods-*pod*.slice"):
                        uid = folder.name.removesuffix(".slice").rpartition("-pod")[2].replace("_", "-")
                        found[uid] = f"{self._path(parts)}/{folder.name}"
            return found
        for tree in self._trees:
            for group in ("kubepods", "kubepods/burstable", "kubepods/besteffort"):
                for folder in (tree / self._join(group)).glob("pod*"):
                    found[folder.name.removeprefix("pod")] = self._join(group, folder.name)
        return found

    def remove_kubepods(self) -> None:
        """Remove the whole tree, for reset."""
        self.remove(self.kubepods())


def _pod_parts(pod: core_v1.Pod) -> list[str]:
    # The UID in the API of a mirror pod is not the static pod's own, which is what runs.
    uid = pod.metadata.annotations.get("kubernetes.io/config.hash") or pod.metadata.uid or ""
    found = qos.qos_class(pod)
    level = [] if found == qos.GUARANTEED else [found.lower()]
    return ["kubepods", *level, f"pod{uid}"]


def _slice(parts: list[str]) -> str:
    return "-".join(part.replace("-", "_") for part in parts) + ".slice"


def _controllers(mount: Path) -> list[Path]:
    """List the v1 hierarchies, each once: cpu and cpuacct may be two names of one."""
    seen: dict[tuple[int, int], Path] = {}
    if mount.is_dir():
        for folder in sorted(mount.iterdir()):
            if folder.is_dir() and not folder.is_symlink() and (folder / "cgroup.procs").exists():
                stat = folder.stat()
                seen.setdefault((stat.st_dev, stat.st_ino), folder)
    return list(seen.values())


def _enable_controllers(folder: Path) -> None:
    with contextlib.suppress(OSError):
        available = (folder / "cgroup.controllers").read_text().split()
        enabled = (folder / "cgroup.subtree_control").read_text().split()
        for controller in available:
            if controller not in enabled:
                _write(folder / "cgroup.subtree_control", f"+{controller}", quiet=True)


def _write(file: Path, value: int | str, *, quiet: bool = False) -> None:
    try:
        file.write_text(str(value))
    except OSError as error:
        if not quiet:
            log.warning("cgroup: writing %s to %s: %s", value, file, error.strerror)


def _remove_tree(folder: Path) -> bool:
    """Remove bottom-up with rmdir alone: a cgroup's files vanish with it, and nothing else can be there."""
    gone = True
    try:
        for below in [Path(entry.path) for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]:
            gone &= _remove_tree(below)
    except (FileNotFoundError, NotADirectoryError):
        return True  # the runtime was quicker
    try:
        folder.rmdir()
    except FileNotFoundError:
        pass
    except OSError as error:
        if error.errno != errno.EBUSY:
            log.warning("cgroup: removing %s: %s", folder, error.strerror)
        _kill_all(folder)
        return False
    return gone


def _kill_all(folder: Path) -> None:
    with contextlib.suppress(OSError):
        for pid in (folder / "cgroup.procs").read_text().split():
            if int(pid) > 1:  # 0 is a process of another PID namespace
                os.kill(int(pid), signal.SIGKILL)
