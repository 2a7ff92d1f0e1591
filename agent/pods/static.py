"""Static pods: manifests in a directory on this machine, run without the API, and shown there as mirror pods.

A static pod's UID is the digest of its file, so a changed file is another pod, and a restarted agent finds the same one again.
inotify reports changes in the directory; a slow read repairs what it missed. The rules are upstream's
(pkg/kubelet/config/common.go): the name gets the node's as a suffix, everything is tolerated.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from agent.files.decoding import DamagedFileError, decode_yaml, text_of
from kube import inotify, serialize
from kube.api import core_v1, meta_v1
from kube.clock import Clock, format_time

log = logging.getLogger(__name__)

LOOK_SECONDS = 20.0
HASH, SOURCE, SEEN, MIRROR = (
    "kubernetes.io/config.hash",
    "kubernetes.io/config.source",
    "kubernetes.io/config.seen",
    "kubernetes.io/config.mirror",
)
_MASK = inotify.CLOSE_WRITE | inotify.MOVED_FROM | inotify.MOVED_TO | inotify.CREATE | inotify.DELETE


class ManifestError(Exception):
    """A file is not a pod that can run as a static one."""


class StaticPods:
    """Follows a folder of manifests; `changed` is called with all its pods, by UID, whenever they differ."""

    def __init__(
        self,
        folder: Path,
        node_name: str,
        changed: Callable[[Mapping[str, core_v1.Pod]], None],
        *,
        clock: Clock,
    ) -> None:
        self._folder, self._node_name, self._changed, self._clock = folder, node_name, changed, clock
        self._pods: dict[str, core_v1.Pod] = {}
        self._bad: dict[Path, str] = {}

    async def load(self) -> None:
        """Read the folder once, so that what runs of its pods is known to be wanted."""
        if await asyncio.to_thread(self._folder.is_dir):
            self._take_in(await asyncio.to_thread(self._read))

    async def run(self) -> None:
        """Follow the folder until cancelled; it may be made later."""
        while not await asyncio.to_thread(self._folder.is_dir):
            await self._clock.sleep(LOOK_SECONDS)
        with inotify.Watcher() as watcher:
            watcher.add(self._folder, _MASK)
            while True:
                self._take_in(await asyncio.to_thread(self._read))
                await watcher.wait(LOOK_SECONDS)

    def _take_in(self, found: dict[str, core_v1.Pod]) -> None:
        if found.keys() != self._pods.keys():
            # What is known keeps its time of being seen.
            self._pods = {uid: self._pods.get(uid, pod) for uid, pod in found.items()}
            self._changed(self._pods)

    def _read(self) -> dict[str, core_v1.Pod]:
        pods = {}
        for path in sorted(self._folder.iterdir()):
            if (
                path.name.startswith(".")
                or path.suffix not in (".yaml", ".yml", ".json", ".manifest")
                or not path.is_file()
            ):
                continue
            try:
                pod = parse(text_of(path), path, self._node_name, format_time(self._clock.now()))
            except (ManifestError, OSError, DamagedFileError) as error:
                if self._bad.get(path) != str(error):
                    self._bad[path] = str(error)
                    log.error("static pod %s: %s", path, error)
                continue
            self._bad.pop(path, None)
            pods[pod.metadata.uid or ""] = pod
        return pods


def parse(text: str, path: Path, node_name: str, seen: str) -> core_v1.Pod:
    """Read a manifest as this node's static pod. Raise ManifestError."""
    try:
        document = decode_yaml(text)
    except DamagedFileError as error:
        raise ManifestError(str(error)) from error
    if not isinstance(document, dict) or (document.get("apiVersion"), document.get("kind")) != ("v1", "Pod"):
        raise ManifestError("not a v1 Pod")
    try:
        pod = serialize.convert(document, core_v1.Pod)
    except msgspec.ValidationError as error:
        raise ManifestError(str(error)) from error
    if not pod.metadata.name or not pod.spec.containers:
        raise ManifestError("a name and a container are required")
    _refuse_references(pod)
    metadata = pod.metadata
    source = f"host:{node_name}file:{path}{text}".encode(errors="surrogateescape")
    digest = hashlib.md5(source, usedforsecurity=False).hexdigest()
    metadata.uid = metadata.uid or digest
    metadata.name = f"{metadata.name}-{node_name}"
    metadata.namespace = metadata.namespace or "default"
    metadata.annotations |= {HASH: metadata.uid, SOURCE: "file", SEEN: seen}
    pod.status = core_v1.PodStatus(phase="Pending")
    _default(pod, node_name)
    return pod


def _refuse_references(pod: core_v1.Pod) -> None:
    """A static pod must not depend on API objects: it runs before there is an API."""
    spec = pod.spec
    if spec.service_account_name or spec.resource_claims:
        raise ManifestError("static pods may not use service accounts or resource claims")
    for volume in spec.volumes:
        if volume.config_map or volume.secret or volume.projected or volume.persistent_volume_claim:
            raise ManifestError(f'static pods may not reference API objects: volume "{volume.name}"')
    for container in (*spec.init_containers, *spec.containers):
        if container.env_from or any(e.value_from and not e.value_from.field_ref for e in container.env):
            raise ManifestError(f'static pods may not reference API objects: container "{container.name}"')


def _default(pod: core_v1.Pod, node_name: str) -> None:
    """Fill in what the API server would have."""
    spec = pod.spec
    spec.node_name = node_name
    spec.restart_policy = spec.restart_policy or "Always"
    spec.dns_policy = spec.dns_policy or "ClusterFirst"
    spec.scheduler_name = spec.scheduler_name or "default-scheduler"
    spec.enable_service_links = True if spec.enable_service_links is None else spec.enable_service_links
    if spec.termination_grace_period_seconds is None:
        spec.termination_grace_period_seconds = 30
    spec.security_context = spec.security_context or core_v1.PodSecurityContext()
    if not any(t.operator == "Exists" and t.effect == "NoExecute" and not t.key for t in spec.tolerations):
        spec.tolerations.append(core_v1.Toleration(operator="Exists", effect="NoExecute"))
    for container in (*spec.init_containers, *spec.containers):
        tag = (container.image or "").rpartition("/")[2].partition(":")[2]
        latest = not tag or tag == "latest"
        container.image_pull_policy = container.image_pull_policy or ("Always" if latest else "IfNotPresent")
        container.termination_message_path = container.termination_message_path or "/dev/termination-log"
        container.termination_message_policy = container.termination_message_policy or "File"
        resources = container.resources
        if resources is not None:
            resources.requests = {**resources.limits, **resources.requests}
        for port in container.ports:
            port.protocol = port.protocol or "TCP"
            if spec.host_network:
                port.host_port = port.host_port or port.container_port


def mirror_of(pod: core_v1.Pod, node: core_v1.ObjectReference) -> core_v1.Pod:
    """Return the mirror pod to create for a static pod: the same spec, owned by the node."""
    copy = serialize.copy(pod)
    copy.metadata.uid = None
    copy.metadata.annotations[MIRROR] = pod.metadata.annotations[HASH]
    copy.metadata.owner_references = [
        meta_v1.OwnerReference(api_version="v1", kind="Node", name=node.name or "", uid=node.uid or "", controller=True)
    ]
    copy.status = core_v1.PodStatus()
    return copy


def is_mirror(pod: core_v1.Pod) -> bool:
    """Return whether an API object is a mirror pod."""
    return MIRROR in pod.metadata.annotations
