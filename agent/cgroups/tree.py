"""The cgroups above the containers: kubepods, one per QoS class, one per pod; cgroup v1 and v2.

The runtime creates a container's cgroup; the agent creates its parents, so that a pod's limits hold for all its containers
together and CPU time is first shared between classes. With the cgroupfs driver they are directories and files (cgroupfs.py);
with the systemd driver they are slices, named after the path, whose limits systemd sets (slices.py).
"""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

from agent.cgroups import qos, slices
from agent.cgroups.cgroupfs import MOUNT, CgroupFS, Limits
from kube.api import core_v1


class Cgroups:
    """The cgroup tree of one agent. The methods that are not async block for well under a millisecond."""

    def __init__(self, root: str, driver: str, *, mount: Path = MOUNT) -> None:
        self.fs = CgroupFS(mount)
        self._driver = driver
        self._root = root.strip("/")

    # -- names ----------------------------------------------------------------------------------------------------
    def kubepods(self) -> str:
        """Return the cgroup above all pods as a path below the mount."""
        return self._path(["kubepods"])

    def pod_path(self, pod: core_v1.Pod) -> str:
        """Return the pod's cgroup as a path below the mount, whatever the driver."""
        return self._path(_pod_parts(pod))

    def pod_parent(self, pod: core_v1.Pod) -> str:
        """Return the cgroup_parent for CRI: a path, or with systemd the slice's name."""
        parts = _pod_parts(pod)
        return _slice(parts) if self._driver == "systemd" else "/" + self._path(parts)

    def _path(self, parts: list[str]) -> str:
        if self._driver != "systemd":
            return self._join(*parts)
        return self._join(*(_slice(parts[: depth + 1]) for depth in range(len(parts))))

    def _join(self, *parts: str) -> str:
        return "/".join(part for part in (self._root, *parts) if part)

    # -- making and setting -----------------------------------------------------------------------------------------
    async def apply(self, path: str, limits: Limits, *, strict: bool = False) -> None:
        """Set a cgroup's limits with the driver, and with cgroupfs create it if it does not exist.

        Raise OSError for a limit that is refused if `strict`; else it is logged.
        """
        if self._driver == "systemd":
            wanted = slices.properties(**dataclasses.asdict(limits))
            await slices.set_properties(path.rpartition("/")[2], wanted, strict=strict)
        else:
            await asyncio.to_thread(self.fs.ensure, path, limits, strict=strict)

    async def ensure_pod(self, pod: core_v1.Pod, limits: Limits) -> None:
        """Create the pod's cgroup with its limits (`pod_limits`)."""
        path = self.pod_path(pod)
        await self.apply(path, limits)
        await asyncio.to_thread(self.fs.limit_huge_pages, path, lambda name: qos.pod_request(pod, name))

    async def limit_existing(self, name: str, limits: Limits) -> None:
        """Set the given limits on an existing cgroup. Raise OSError if it does not exist."""
        systemd = self._driver == "systemd"
        path = slices.path_of(name) if systemd else self._join(*name.strip("/").split("/"))
        self.fs.require(path)
        if systemd:
            await slices.set_properties(path.rpartition("/")[2], slices.given(**dataclasses.asdict(limits)))
        else:
            self.fs.limit(path, limits)

    async def ensure_node(self, limits: Limits) -> None:
        """Create kubepods with the limit of all pods together, and the two QoS classes below it."""
        await self.apply(self.kubepods(), limits)
        await self.apply(self._path(["kubepods", "burstable"]), Limits(cpu_shares=qos.MIN_SHARES))
        await self.apply(self._path(["kubepods", "besteffort"]), Limits(cpu_shares=qos.MIN_SHARES))

    async def set_burstable_shares(self, total: int) -> None:
        """Give the burstable class the CPU shares for what its pods request together, in millicores."""
        await self.apply(self._path(["kubepods", "burstable"]), Limits(cpu_shares=qos.cpu_shares(total)))

    # -- removing -----------------------------------------------------------------------------------------------------
    async def remove(self, path: str) -> bool:
        """Remove a cgroup with the driver, and kill its processes; return False if it must be retried."""
        if self._driver == "systemd":
            return await slices.stop(path.rpartition("/")[2])
        return await asyncio.to_thread(self.fs.remove, path)

    def pod_uids(self) -> dict[str, str]:
        """Return the pods that have a cgroup, by UID, with its path."""
        found: dict[str, str] = {}
        if self._driver == "systemd":
            for tree in self.fs.trees:
                for parts in (["kubepods"], ["kubepods", "burstable"], ["kubepods", "besteffort"]):
                    for folder in (tree / self._path(parts)).glob("kubepods-*pod*.slice"):
                        uid = folder.name.removesuffix(".slice").rpartition("-pod")[2].replace("_", "-")
                        found[uid] = f"{self._path(parts)}/{folder.name}"
            return found
        for tree in self.fs.trees:
            for group in ("kubepods", "kubepods/burstable", "kubepods/besteffort"):
                for folder in (tree / self._join(group)).glob("pod*"):
                    found[folder.name.removeprefix("pod")] = self._join(group, folder.name)
        return found


def pod_limits(pod: core_v1.Pod, *, cfs_quota: bool, period_us: int, pids: int) -> Limits:
    """Return the limits of a pod's cgroup: its own resources, or the sums of its containers'."""
    found = qos.qos_class(pod)
    return Limits(
        cpu_shares=qos.cpu_shares(qos.pod_request(pod, "cpu")) if found != qos.BEST_EFFORT else qos.MIN_SHARES,
        cpu_quota=qos.cpu_quota(qos.pod_limit(pod, "cpu"), period_us) if cfs_quota else 0,
        cpu_period=period_us,
        memory=qos.pod_limit(pod, "memory"),
        pids=max(pids, 0),
    )


def _pod_parts(pod: core_v1.Pod) -> list[str]:
    found = qos.qos_class(pod)
    level = [] if found == qos.GUARANTEED else [found.lower()]
    return ["kubepods", *level, f"pod{pod.metadata.uid or ''}"]


def _slice(parts: list[str]) -> str:
    return "-".join(part.replace("-", "_") for part in parts) + ".slice"
