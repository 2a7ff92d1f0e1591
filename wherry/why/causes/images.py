"""Finds why an image cannot be pulled."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from kube.api import apps_v1, core_v1
from kube.object_names import namespace_of
from wherry.why import commands
from wherry.why.diagnosis import Diagnosis
from wherry.why.model import Cause, Reference, reference
from wherry.why.owners import template_owner

REASONS = frozenset(
    "ErrImagePull ImagePullBackOff InvalidImageName ErrImageNeverPull RegistryUnavailable ImageInspectError".split()
)
DOCKER_HUB = "docker.io"
_DENIED = re.compile(
    r"unauthori[sz]ed|authorization failed|authentication required|access denied|denied:|forbidden|\b40[13]\b", re.I
)
_MISSING = re.compile(r"not found|manifest unknown|name unknown|repository does not exist|\b404\b", re.I)
_PROBLEMS = (
    (
        re.compile(r"server gave HTTP response to HTTPS client", re.I),
        "registry {host} speaks HTTP, and {node} expects HTTPS",
    ),
    (re.compile(r"x509|certificate", re.I), "{node} does not trust the certificate of registry {host}"),
    (
        re.compile(r"no such host|name resolution|server misbehaving|Name or service not known", re.I),
        "{node} cannot resolve the name of registry {host}",
    ),
    (
        re.compile(r"connection refused|timeout|deadline exceeded|timed out|unreachable|no route", re.I),
        "registry {host} does not answer {node}",
    ),
    (re.compile(r"no space left", re.I), "the disk of {node} is full"),
)


async def pull(
    diagnosis: Diagnosis, pod: core_v1.Pod, container: core_v1.Container, status: core_v1.ContainerStatus
) -> Cause:
    """Return why a container waits for its image; its state is one of `REASONS`."""
    waiting = status.state.waiting if status.state is not None else None
    reason, message = (waiting.reason or "", waiting.message or "") if waiting is not None else ("", "")
    message = await _message(diagnosis, pod, message)
    image, about = container.image or status.image, reference(pod)
    replace = await _replace(diagnosis, pod, container)
    what, node = f'image "{image}" of container {container.name}', f"node {pod.spec.node_name}"
    if reason == "InvalidImageName":
        return Cause(f"{what} is no valid name of an image", replace, about)
    if reason == "ErrImageNeverPull":
        return Cause(f"{what} is not on {node}, and its imagePullPolicy is Never", replace, about)
    host = registry(image)
    denied, missing = _DENIED.search(message), _MISSING.search(message)
    if (secret := await _wrong_secret(diagnosis, pod)) and (denied or not missing):
        return Cause(f"{what} cannot be pulled: {secret}", _create_secret(pod, host, secret), about)
    if denied:
        why = f"registry {host} refuses the credentials of {node}, or has no such image"
        return Cause(f"{what} cannot be pulled: {why}", _create_secret(pod, host, ""), about)
    if missing:
        return Cause(f"{what} does not exist in its registry", replace, about)
    for pattern, why in _PROBLEMS:
        if pattern.search(message):
            return Cause(f"{what} cannot be pulled: {why.format(host=host, node=node)}: {message}", replace, about)
    return Cause(f"{what} cannot be pulled: {message or reason}", replace, about)


def registry(image: str) -> str:
    """Return the host of an image's registry."""
    first = image.partition("/")[0]
    return first if "/" in image and ("." in first or ":" in first or first == "localhost") else DOCKER_HUB


async def _message(diagnosis: Diagnosis, pod: core_v1.Pod, now: str) -> str:
    """Return the registry's error: a container's back-off does not repeat it, the last event does."""
    if now and not now.startswith("Back-off"):
        return now
    for event in reversed(await diagnosis.reader.events(pod)):
        if event.reason == "Failed" and event.message and "pull image" in event.message:
            return event.message
    return now


async def _wrong_secret(diagnosis: Diagnosis, pod: core_v1.Pod) -> str:
    """Return what is wrong with one of the pod's pull secrets; "" if nothing is, or if they cannot be read."""
    for named in pod.spec.image_pull_secrets:
        name = named.name or ""
        secret = await diagnosis.reader.get(core_v1.Secret, name, namespace_of(pod))
        if secret is None:
            if diagnosis.reader.missing(core_v1.Secret, name, namespace_of(pod)):
                return f"its pull secret {name} does not exist"
        elif secret.type not in ("kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg"):
            return f"its pull secret {name} has the type {secret.type}, not kubernetes.io/dockerconfigjson"
    return ""


def _create_secret(pod: core_v1.Pod, host: str, problem: str) -> str:
    """Return the command that creates the pull secret, and if the pod has none, gives it to the pod's service account."""
    names = [each.name for each in pod.spec.image_pull_secrets if each.name]
    name = next((each for each in names if each in problem), names[0] if names else "registry")
    namespace = namespace_of(pod)
    server = "https://index.docker.io/v1/" if host == DOCKER_HUB else host
    create = shlex.join(
        [
            *"kubectl create secret docker-registry".split(),
            *(
                commands.named(name),
                f"--docker-server={server}",
                "--docker-username=USER",
                "--docker-password=PASSWORD",
            ),
            *commands.namespaced(namespace),
        ]
    )
    if names:
        return create
    account = Reference("ServiceAccount", pod.spec.service_account_name or "default", namespace)
    return f"{create} && {commands.patch(account, {'imagePullSecrets': [{'name': name}]})}"


async def _replace(diagnosis: Diagnosis, pod: core_v1.Pod, container: core_v1.Container) -> str:
    """Return the command that gives a container another image: the one before, if a Deployment had one that works."""
    change = await template_owner(diagnosis.reader, pod)
    if change.kind == "Deployment":
        sets = await diagnosis.reader.all(apps_v1.ReplicaSet, change.namespace)
        if _worked_before(sets, change.name):
            return commands.kubectl("rollout undo", change)
    if change.kind == "Job":
        return commands.kubectl("delete", change)
    return commands.kubectl("set image", change, f"{container.name}=IMAGE")


def _worked_before(sets: Sequence[apps_v1.ReplicaSet], deployment: str) -> bool:
    """Return whether a Deployment has Ready pods of an older template."""
    return any(
        owner.controller and owner.kind == "Deployment" and owner.name == deployment and each.status.ready_replicas
        for each in sets
        for owner in each.metadata.owner_references
    )
