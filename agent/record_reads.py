"""Reads the records of containers and sandboxes, also of those whose status cannot be read.

A status may be larger than a message (16 MiB), while the request that created the container was not: containerd adds the groups
that the image's /etc/group has for its user. What cannot be read must not keep others from being read, nor a pod from being
ended: what the runtime's list has of it is used (upstream leaves such a pod alone, pleg/generic.go).

Many pods may be read at a time, as when a namespace is deleted, and a status of 16 MiB takes four times as much while it is
decoded. So statuses are received one at a time, round robin over namespaces, or pods if only those are known.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from agent import runtime_messages
from agent.runtime_records import POD_NAMESPACE, ContainerRecord, SandboxRecord
from cri.errors import (
    CRIError,
    DeadlineExceededError,
    IncompleteAnswerError,
    MessageTooLargeError,
    NotFoundError,
    UnavailableError,
)
from cri.messages import Container, PodSandbox
from cri.runtime_service import RuntimeService
from kube.serving.fair_queue import Slots

log = logging.getLogger(__name__)

_NO_MESSAGE = "INTERNAL"
"""gRPC's code for a message that cannot be encoded or decoded, as one with text that is no UTF-8."""
_NO_ANSWER = (DeadlineExceededError, UnavailableError, IncompleteAnswerError)
"""Errors that are not about one container."""


class RecordReads:
    """Reads records from one runtime."""

    def __init__(self, runtime: RuntimeService) -> None:
        self._runtime = runtime
        self._turns = Slots(1)

    async def container(self, container_id: str, sandbox_id: str, namespace: str = "") -> ContainerRecord | None:
        """Read a container; None if it is gone. Raise CRIError, but not for a status that makes no message."""
        try:
            status = await self._runtime.container_status(container_id, turn=self._turns.slot(namespace or sandbox_id))
        except NotFoundError:
            return None
        except IncompleteAnswerError:
            raise
        except CRIError as error:
            if not isinstance(error, MessageTooLargeError) and error.code != _NO_MESSAGE:
                raise
            log.warning("container %s: its entry in the list is used: %s", container_id, error)
            return await self._from_list(container_id, error.message)
        try:
            return runtime_messages.container_record(status, sandbox_id)
        except Exception as error:  # an error in one status must not keep the others from being read
            log.exception("container %s: its entry in the list is used", container_id)
            return await self._from_list(container_id, str(error))

    async def _from_list(self, container_id: str, why: str) -> ContainerRecord | None:
        """Read a container's entry in the runtime's list; None if it is gone. Raise CRIError."""
        listed = await self._runtime.list_containers(container_id=container_id)
        return runtime_messages.listed_container(listed[0], why) if listed else None

    async def sandbox(self, sandbox_id: str) -> SandboxRecord | None:
        """Read a sandbox; None if it is gone. Raise CRIError."""
        try:
            return runtime_messages.sandbox_record(await self._runtime.pod_sandbox_status(sandbox_id))
        except NotFoundError:
            return None

    async def listed_container(self, listed: Container, known: ContainerRecord | None) -> ContainerRecord | None:
        """Read a container of a list. If it alone cannot be read, return what is known of it, or else what the list has.

        Raise CRIError if the runtime does not answer.
        """
        try:
            return await self.container(listed.id, listed.pod_sandbox_id, listed.labels.get(POD_NAMESPACE, ""))
        except _NO_ANSWER:
            raise
        except CRIError as error:
            log.warning("the status of container %s cannot be read: %s", listed.id, error)
            return known or replace(runtime_messages.listed_container(listed, error.message), unread=True)

    async def listed_sandbox(self, listed: PodSandbox, known: SandboxRecord | None) -> SandboxRecord | None:
        """Do the same for a sandbox of a list."""
        try:
            return await self.sandbox(listed.id)
        except _NO_ANSWER:
            raise
        except CRIError as error:
            log.warning("the status of sandbox %s cannot be read: %s", listed.id, error)
            return known or runtime_messages.listed_sandbox(listed)
