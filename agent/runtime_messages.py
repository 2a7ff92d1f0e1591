"""Reads CRI's messages about containers and sandboxes as records (runtime_records.py).

An image's author, a container and a runtime choose texts and groups in them, so those are limited here.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

from agent.runtime_records import (
    CONTAINER_NAME,
    HASH,
    MESSAGE_PATH,
    MESSAGE_POLICY,
    POD_DELETION_GRACE,
    POD_GRACE,
    RESTART_COUNT,
    ContainerRecord,
    SandboxRecord,
    State,
)
from cri.messages import (
    Container,
    ContainerState,
    ContainerStatus,
    PodSandbox,
    PodSandboxState,
    PodSandboxStatus,
    Signal,
)
from cri.texts import NAME, shortened

MOST_GROUPS = 1024
"""Further groups of a user that are kept. An image's /etc/group chooses them, and may have a user in any number of them."""

_NUMBER = re.compile("-?[0-9]{1,19}")
_STATES = {
    ContainerState.CONTAINER_CREATED: State.CREATED,
    ContainerState.CONTAINER_RUNNING: State.RUNNING,
    ContainerState.CONTAINER_EXITED: State.EXITED,
}


def container_record(status: ContainerStatus, sandbox_id: str = "") -> ContainerRecord:
    """Read a ContainerStatus answer, with the contents of labels and annotations."""
    annotations = status.annotations
    path = annotations.get(MESSAGE_PATH, "")
    message_file = next((m.host_path for m in status.mounts if path and m.container_path == path), "")
    return ContainerRecord(
        id=status.id,
        name=status.labels.get(CONTAINER_NAME, status.metadata.name),
        state=_state(status.state),
        restart_count=_restart_count(annotations) or status.metadata.attempt,
        sandbox_id=sandbox_id,
        image=status.image.image,
        image_ref=status.image_ref,
        hash=annotations.get(HASH, ""),
        created_at=status.created_at / 1e9,
        started_at=status.started_at / 1e9,
        finished_at=status.finished_at / 1e9,
        exit_code=status.exit_code,
        reason=shortened(status.reason, NAME),
        message=shortened(status.message),
        log_path=status.log_path,
        message_file=message_file,
        message_policy=annotations.get(MESSAGE_POLICY, "File"),
        stop_signal=_signal(status.stop_signal),
        mounted_images=frozenset(m.image.image for m in status.mounts if m.image.image),
        deep_read_only=frozenset(m.container_path for m in status.mounts if m.recursive_read_only),
        user=_user(status),
        grace=_grace(annotations),
    )


def _state(state: ContainerState) -> State:
    """Return the state of a container, UNKNOWN for one that only a newer runtime has (upstream: ToKubeContainerState)."""
    return _STATES.get(state, State.UNKNOWN)


def _signal(number: int) -> str:
    """Return the API's name of a signal, "" for one that is not set or that only a newer runtime has."""
    name = str(Signal.Name(number)) if number and number in Signal.values() else ""
    return name.replace("PLUS", "+").replace("MINUS", "-")


def _user(status: ContainerStatus) -> tuple[int, int, tuple[int, ...]] | None:
    if not status.user.HasField("linux") or len(status.user.linux.supplemental_groups) > MOST_GROUPS:
        return None
    found = status.user.linux
    return found.uid, found.gid, _shared(tuple(found.supplemental_groups))


@functools.lru_cache(256)
def _shared(groups: tuple[int, ...]) -> tuple[int, ...]:
    """Return the same tuple for the same groups: the containers of a pod have its groups, each as many as the pod."""
    return groups


def listed_container(container: Container, why: str) -> ContainerRecord:
    """Read a ListContainers entry, if the container's status cannot be read: how it ended is not known then."""
    state = _state(container.state)
    ended = state in (State.EXITED, State.UNKNOWN)
    created_at = container.created_at / 1e9
    return ContainerRecord(
        id=container.id,
        name=container.labels.get(CONTAINER_NAME, container.metadata.name),
        state=state,
        restart_count=_restart_count(container.annotations) or container.metadata.attempt,
        sandbox_id=container.pod_sandbox_id,
        image=container.image.image,
        image_ref=container.image_ref,
        hash=container.annotations.get(HASH, ""),
        created_at=created_at,
        started_at=created_at,
        finished_at=created_at if ended else 0.0,
        exit_code=137 if ended else 0,
        reason="ContainerStatusUnknown" if ended else "",
        message=shortened(f"The container's status cannot be read: {why}") if ended else "",
        grace=_grace(container.annotations),
    )


def listed_state(container: Container) -> State:
    """Read the state in a ListContainers answer."""
    return _state(container.state)


def sandbox_record(status: PodSandboxStatus) -> SandboxRecord:
    """Read a PodSandboxStatus answer; its addresses are in the runtime's order, the first is the pod's IP."""
    ips = [status.network.ip, *(extra.ip for extra in status.network.additional_ips)]
    return SandboxRecord(
        id=status.id,
        ready=status.state == PodSandboxState.SANDBOX_READY,
        attempt=status.metadata.attempt,
        created_at=status.created_at / 1e9,
        ips=tuple(ip for ip in ips if ip),
        host_network=status.linux.namespaces.options.network == 2,
    )


def listed_sandbox(sandbox: PodSandbox) -> SandboxRecord:
    """Read a ListPodSandbox entry, which has no addresses."""
    return SandboxRecord(
        id=sandbox.id,
        ready=sandbox.state == PodSandboxState.SANDBOX_READY,
        attempt=sandbox.metadata.attempt,
        created_at=sandbox.created_at / 1e9,
    )


def _restart_count(annotations: Mapping[str, str]) -> int:
    return max(_number(annotations.get(RESTART_COUNT)) or 0, 0)


def _grace(annotations: Mapping[str, str]) -> int | None:
    return _number(annotations.get(POD_DELETION_GRACE)) or _number(annotations.get(POD_GRACE))


def _number(text: str | None) -> int | None:
    """Read a number of 64 bits; None for any other text, which others may have passed to the runtime."""
    if not text or not _NUMBER.fullmatch(text):
        return None
    return found if -(1 << 63) <= (found := int(text)) < 1 << 63 else None
