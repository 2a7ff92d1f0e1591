"""The files of a volume, as path to contents: ConfigMaps, Secrets, downward API items, tokens and trust bundles. Pure.

Wordings are upstream's (pkg/volume/{configmap,secret,projected,downwardapi}); they end up in FailedMount events.
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from agent.podspec import downward
from agent.podspec.environment import References
from agent.volumes.atomic import File
from kube.api import core_v1
from kube.quantity import Quantity

DEFAULT_MODE = 0o644
MOST_BYTES, MOST_ENTRIES = 64 << 20, 20_000
"""Most bytes, files and directories in a pod's volumes together. Most of them lie in memory
that no limit of the pod counts. Upstream has no bound."""


class VolumeError(Exception):
    """A volume cannot be set up; the message goes into the FailedMount event.

    `step` and `name` are what was tried with what, where that is not setting up the pod's volume by its own name.
    """

    def __init__(self, message: str, *, step: str = "", name: str = "") -> None:
        super().__init__(message)
        self.step, self.name = step, name


class AttachLimitError(Exception):
    """A volume cannot be attached because the node has as many of its driver as it can; the pod is rejected for it."""


@dataclass(slots=True)
class SizeBudget:
    """The size and number of files that a pod may still have."""

    bytes: int = MOST_BYTES
    entries: int = MOST_ENTRIES

    def take(self, path: str, size: int) -> None:
        """Count a file with the folders of its path. Raise VolumeError if there is no room."""
        self.bytes -= size
        self.entries -= 1 + path.count("/")
        if self.bytes < 0:
            raise VolumeError(f"the files of the pod's volumes have more than {MOST_BYTES} bytes together")
        if self.entries < 0:
            raise VolumeError(f"the pod's volumes have more than {MOST_ENTRIES} files and folders together")


@dataclass(frozen=True, slots=True)
class Sources:
    """Sources of the contents beside the pod; tokens and bundles were fetched before, by volume and path."""

    references: References
    allocatable: Mapping[str, Quantity] = field(default_factory=dict)
    host_ips: tuple[str, ...] = ()
    pod_ips: tuple[str, ...] = ()
    tokens: Mapping[tuple[str, str], str] = field(default_factory=dict)
    bundles: Mapping[tuple[str, str], str] = field(default_factory=dict)
    token_uid: int | None = None
    """The one user that all the pod's containers run as; tokens belong to it then."""
    budget: SizeBudget = field(default_factory=SizeBudget)


def volume_payload(pod: core_v1.Pod, volume: core_v1.Volume, sources: Sources) -> dict[str, File]:
    """Return the files of a configMap, secret, downwardAPI or projected volume. Raise VolumeError."""
    namespace = pod.metadata.namespace or ""
    if (source := volume.config_map) is not None:
        return config_map_files(namespace, source, source.name or "", source.default_mode, sources)
    if (secret := volume.secret) is not None:
        return secret_files(namespace, secret, secret.secret_name or "", secret.default_mode, sources)
    if (api := volume.downward_api) is not None:
        return downward_files(pod, api.items, api.default_mode, sources)
    assert volume.projected is not None, volume.name
    return _projected(pod, volume.name, volume.projected, sources)


def config_map_files(
    namespace: str,
    source: core_v1.ConfigMapVolumeSource | core_v1.ConfigMapProjection,
    name: str,
    default_mode: int | None,
    sources: Sources,
) -> dict[str, File]:
    found = sources.references.config_map(namespace, name)
    if found is None:
        if source.optional:
            return {}
        raise VolumeError(f'configmap "{name}" not found')
    text, binary = found.data, found.binary_data

    def read(key: str) -> bytes | None:
        if key in binary:
            return base64.b64decode(binary[key])
        return text[key].encode() if key in text else None

    complaint = "" if source.optional else "configmap references non-existent config key"
    return _select(itertools.chain(text, binary), read, source.items, default_mode, complaint, sources.budget)


def secret_files(
    namespace: str,
    source: core_v1.SecretVolumeSource | core_v1.SecretProjection,
    name: str,
    default_mode: int | None,
    sources: Sources,
) -> dict[str, File]:
    found = sources.references.secret(namespace, name)
    if found is None:
        if source.optional:
            return {}
        raise VolumeError(f'secret "{name}" not found')
    data = found.data

    def read(key: str) -> bytes | None:
        return base64.b64decode(data[key]) if key in data else None

    complaint = "" if source.optional else "references non-existent secret key"
    return _select(data, read, source.items, default_mode, complaint, sources.budget)


def _select(
    keys: Iterable[str],
    read: Callable[[str], bytes | None],
    items: Sequence[core_v1.KeyToPath],
    default_mode: int | None,
    complaint: str,
    budget: SizeBudget,
) -> dict[str, File]:
    """Return the files of an object's items, of all its keys without any; where a key is missing, `complaint` is raised."""
    mode = DEFAULT_MODE if default_mode is None else default_mode
    wanted = [(item.key, item.path, item.mode) for item in items] or [(key, key, None) for key in keys]
    files = {}
    for key, path, own in wanted:
        content = read(key)
        if content is None:
            if not complaint:
                continue
            raise VolumeError(f"{complaint}: {key}")
        budget.take(path, len(content))
        files[path] = File(content, mode if own is None else own)
    return files


def downward_files(
    pod: core_v1.Pod, items: Sequence[core_v1.DownwardAPIVolumeFile], default_mode: int | None, sources: Sources
) -> dict[str, File]:
    mode = DEFAULT_MODE if default_mode is None else default_mode
    files = {}
    for item in items:
        try:
            if item.field_ref is not None:
                path = item.field_ref.field_path
                text = downward.field(pod, path, host_ips=sources.host_ips, pod_ips=sources.pod_ips)
            elif item.resource_field_ref is not None:
                text = downward.resource(pod, item.resource_field_ref, sources.allocatable)
            else:
                continue
        except downward.FieldNotFound as error:
            raise VolumeError(str(error)) from error
        content = text.encode()
        sources.budget.take(item.path, len(content))
        files[item.path] = File(content, mode if item.mode is None else item.mode)
    return files


def _projected(pod: core_v1.Pod, name: str, volume: core_v1.ProjectedVolumeSource, sources: Sources) -> dict[str, File]:
    namespace, mode = pod.metadata.namespace or "", volume.default_mode
    files: dict[str, File] = {}
    for source in volume.sources:
        if (config_map := source.config_map) is not None:
            files |= config_map_files(namespace, config_map, config_map.name or "", mode, sources)
        if (secret := source.secret) is not None:
            files |= secret_files(namespace, secret, secret.name or "", mode, sources)
        if (api := source.downward_api) is not None:
            files |= downward_files(pod, api.items, mode, sources)
        if (token := source.service_account_token) is not None:
            group = pod.spec.security_context.fs_group if pod.spec.security_context else None
            private = sources.token_uid is not None or group is not None
            bits = 0o600 if private else (DEFAULT_MODE if mode is None else mode)
            sources.budget.take(token.path, len(sources.tokens[name, token.path]))
            files[token.path] = File(sources.tokens[name, token.path].encode(), bits, sources.token_uid)
        if (bundle := source.cluster_trust_bundle) is not None and (name, bundle.path) in sources.bundles:
            text = sources.bundles[name, bundle.path]
            sources.budget.take(bundle.path, len(text))
            files[bundle.path] = File(text.encode(), DEFAULT_MODE if mode is None else mode)
        if source.pod_certificate is not None:
            raise VolumeError("podCertificate projections are not supported by this node")
    return files


def single_user(pod: core_v1.Pod) -> int | None:
    """Return the user that all the pod's containers run as by their security contexts; None if they differ."""
    shared = pod.spec.security_context.run_as_user if pod.spec.security_context else None
    users = set()
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        own = container.security_context.run_as_user if container.security_context else None
        users.add(own if own is not None else shared)
    return users.pop() if len(users) == 1 else None
