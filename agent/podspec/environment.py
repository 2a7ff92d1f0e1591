"""A container's environment: envFrom, service links, env with $(VAR) references, in upstream's order of precedence.

env wins over envFrom, envFrom over the Services' variables; a reference sees what was defined before it. An unresolved
reference stays unchanged, and $$(VAR) is an escaped $(VAR).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

import msgspec

from agent.podspec import downward
from agent.podspec.env_files import EnvFile
from kube.api import core_v1
from kube.quantity import Quantity
from kube.urls import host_port


class ContainerConfigError(Exception):
    """The container's configuration cannot be made (waiting reason CreateContainerConfigError)."""


class References(Protocol):
    """Returns objects that a pod refers to, in the pod's namespace; None if one does not exist."""

    def config_map(self, namespace: str, name: str) -> core_v1.ConfigMap | None: ...
    def secret(self, namespace: str, name: str) -> core_v1.Secret | None: ...


class EnvironmentSources(msgspec.Struct, frozen=True):
    """Inputs of the environment beside the pod."""

    references: References
    services: Mapping[str, str]
    """Variables of the Services (see `service_variables`)."""
    pod_ips: tuple[str, ...] = ()
    host_ips: tuple[str, ...] = ()
    allocatable: Mapping[str, Quantity] | None = None
    files: Mapping[tuple[str, str], EnvFile] = msgspec.field(default_factory=dict)
    """Files with variables, by volume and path."""


def environment(
    pod: core_v1.Pod, container: core_v1.Container | core_v1.EphemeralContainer, around: EnvironmentSources
) -> dict[str, str]:
    """Return the container's variables in order. Raise ContainerConfigError with upstream's message."""
    namespace = pod.metadata.namespace or ""
    result: dict[str, str] = {}
    size = 0
    for source in container.env_from:
        for key, value in _bulk(source, namespace, around.references).items():
            size = _grown(size, key, value)
            result[(source.prefix or "") + key] = value
    known, room = {**around.services, **result}, LONGEST
    for variable in container.env:
        if variable.value_from is not None:
            found = _value_from(pod, container, variable.value_from, around)
            if found is None:
                continue
            value = found
        else:
            value = expand(variable.value or "", known, room)
            room -= max(0, len(value) - len(variable.value or ""))
        size = _grown(size, variable.name, value)
        result.pop(variable.name, None)
        result[variable.name] = known[variable.name] = value
    for name, value in around.services.items():
        if name not in result:
            size = _grown(size, name, value)
            result[name] = value
    return result


def _grown(size: int, name: str, value: str) -> int:
    """Return the characters of an environment with one more variable. Raise ContainerConfigError past LARGEST."""
    size += len(name) + len(value) + EACH
    if size > LARGEST:
        raise ContainerConfigError(f"the environment has more than {LARGEST} characters")
    return size


def _bulk(source: core_v1.EnvFromSource, namespace: str, references: References) -> Mapping[str, str]:
    if source.config_map_ref is not None:
        name = source.config_map_ref.name or ""
        config_map = references.config_map(namespace, name)
        if config_map is not None:
            return config_map.data
        if source.config_map_ref.optional:
            return {}
        raise ContainerConfigError(f'configmap "{name}" not found')
    if source.secret_ref is not None:
        name = source.secret_ref.name or ""
        secret = references.secret(namespace, name)
        if secret is not None:
            return {key: _text(value) for key, value in secret.data.items()}
        if source.secret_ref.optional:
            return {}
        raise ContainerConfigError(f'secret "{name}" not found')
    return {}


def _value_from(
    pod: core_v1.Pod,
    container: core_v1.Container | core_v1.EphemeralContainer,
    source: core_v1.EnvVarSource,
    around: EnvironmentSources,
) -> str | None:
    namespace = pod.metadata.namespace or ""
    try:
        if source.field_ref is not None:
            path = source.field_ref.field_path
            return downward.field(pod, path, host_ips=around.host_ips, pod_ips=around.pod_ips)
        if source.resource_field_ref is not None:
            defaults = downward.default_limits(pod, around.allocatable or {})
            return downward.resource(pod, source.resource_field_ref, defaults, container)
    except downward.FieldNotFound as error:
        raise ContainerConfigError(str(error)) from error
    if (key := source.config_map_key_ref) is not None:
        config_map = around.references.config_map(namespace, key.name or "")
        if config_map is None and not key.optional:
            raise ContainerConfigError(f'configmap "{key.name}" not found')
        if config_map is None or key.key not in config_map.data:
            if key.optional:
                return None
            raise ContainerConfigError(f"couldn't find key {key.key} in ConfigMap {namespace}/{key.name}")
        return config_map.data[key.key]
    if (wanted := source.secret_key_ref) is not None:
        secret = around.references.secret(namespace, wanted.name or "")
        if secret is None and not wanted.optional:
            raise ContainerConfigError(f'secret "{wanted.name}" not found')
        if secret is None or wanted.key not in secret.data:
            if wanted.optional:
                return None
            raise ContainerConfigError(f"couldn't find key {wanted.key} in Secret {namespace}/{wanted.name}")
        return _text(secret.data[wanted.key])
    if source.file_key_ref is not None:
        return _from_file(source.file_key_ref, around.files)
    return ""


def _from_file(wanted: core_v1.FileKeySelector, files: Mapping[tuple[str, str], EnvFile]) -> str | None:
    """Return a variable of a file; an empty one counts as missing."""
    found = files.get((wanted.volume_name, wanted.path))
    if found is None:
        raise ContainerConfigError(f'cannot find the volume "{wanted.volume_name}" referenced by FileKeyRef')
    if value := found.values.get(wanted.key):
        return value
    if found.error and wanted.key not in found.values:
        raise ContainerConfigError("couldn't parse env file")
    if wanted.optional:
        return None
    raise ContainerConfigError(f'environment variable key "{wanted.key}" not found in file "{found.path}"')


def _text(encoded: str) -> str:
    # Bytes that are not UTF-8 reach the process as they are: CRI carries strings, surrogates cannot be sent.
    return base64.b64decode(encoded).decode(errors="replace")


_REFERENCE = re.compile(r"\$(?:\$|\(([^()]*)\))")


LARGEST = 4 * 1024 * 1024
"""Characters of a container's environment: the kernel takes fewer, and a pod of 20 KB may name a ConfigMap 300 times."""
EACH = 10
"""Characters that a variable counts beside its name and value: the kernel adds "=", NUL and a pointer."""
LONGEST = 1024 * 1024
"""Characters that references may add to a container's variables, or to a text. The kernel takes 128 KiB of one argument."""


def expand(text: str, values: Mapping[str, str], room: int = LONGEST) -> str:
    """Replace $(NAME) by its value where it is known; $$ is a literal $.

    Raise ContainerConfigError past `room` added characters.
    """

    def replace(match: re.Match[str]) -> str:
        nonlocal room
        if match[0] == "$$":
            return "$"
        value = values.get(match[1])
        if value is None:
            return match[0]
        room -= len(value)
        if room < 0:
            raise ContainerConfigError(f"references to variables add more than {LONGEST} characters")
        return value

    return _REFERENCE.sub(replace, text)


def names_in(text: str) -> set[str]:
    """Return the variables that a text refers to as $(NAME)."""
    return {match[1] for match in _REFERENCE.finditer(text) if match[0] != "$$"}


def expand_all(texts: Iterable[str], values: Mapping[str, str]) -> list[str]:
    """Expand a command or its arguments. Raise ContainerConfigError if they become too long."""
    found, room = [], LONGEST
    for text in texts:
        found.append(expand(text, values, room))
        room -= max(0, len(found[-1]) - len(text))
    return found


def linked_services(services: Iterable[core_v1.Service], namespace: str, *, links: bool) -> list[core_v1.Service]:
    """Return the Services that a namespace's pods have variables of, by name; `kubernetes` also without links."""
    chosen: dict[str, core_v1.Service] = {}
    for service in services:
        name, where = service.metadata.name or "", service.metadata.namespace or ""
        if service.spec.cluster_ip in (None, "", "None") or not service.spec.ports:
            continue
        if where == namespace and links:
            chosen[name] = service
        elif where == "default" and name == "kubernetes":
            chosen.setdefault(name, service)
    return [chosen[name] for name in sorted(chosen)]


def service_variables(services: Iterable[core_v1.Service]) -> dict[str, str]:
    """Return the variables of Services (Docker's link form too). Raise ContainerConfigError as soon as they pass LARGEST."""
    result: dict[str, str] = {}
    size = 0
    for service in services:
        for name, value in _service(service):
            size = _grown(size, name, value)
            result[name] = value
    return result


def _service(service: core_v1.Service) -> Iterator[tuple[str, str]]:
    name = _variable(service.metadata.name or "")
    address = service.spec.cluster_ip or ""
    ports = service.spec.ports
    yield f"{name}_SERVICE_HOST", address
    yield f"{name}_SERVICE_PORT", str(ports[0].port)
    for port in ports:
        if port.name:
            yield f"{name}_SERVICE_PORT_{_variable(port.name)}", str(port.port)
    for index, port in enumerate(ports):
        protocol = (port.protocol or "TCP").lower()
        url = f"{protocol}://{host_port(address, port.port)}"
        prefix = f"{name}_PORT_{port.port}_{protocol.upper()}"
        if index == 0:
            yield f"{name}_PORT", url
        yield prefix, url
        yield f"{prefix}_PROTO", protocol
        yield f"{prefix}_PORT", str(port.port)
        yield f"{prefix}_ADDR", address


def _variable(name: str) -> str:
    return name.replace("-", "_").upper()
