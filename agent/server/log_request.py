"""Parses a log request: options from its query, the container instance from the pod's status.

The rules and messages are upstream's (kubelet validateContainerLogStatus, PodLogOptions validation): kubectl shows them to the
user as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from agent.interfaces import PodView
from agent.runtime_records import ContainerRecord
from agent.server.log_lines import LogOptions
from kube.api import core_v1
from kube.clock import parse_time


class LogRequestError(Exception):
    """The request cannot be answered: HTTP status and text."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def options(query: Mapping[str, str], now: datetime) -> LogOptions:
    """Read the query of a log request. Raise LogRequestError."""
    since = -1
    if "sinceSeconds" in query and "sinceTime" in query:
        raise LogRequestError(422, "at most one of `sinceTime` or `sinceSeconds` may be specified")
    if seconds := _number(query, "sinceSeconds", least=1):
        since = int((now.timestamp() - seconds) * 1_000_000_000)
    if text := query.get("sinceTime"):
        try:
            since = int(parse_time(text).timestamp() * 1_000_000_000)
        except ValueError as error:
            raise LogRequestError(400, f"sinceTime: {error}") from error
    tail, limit = _number(query, "tailLines", least=0), _number(query, "limitBytes", least=1)
    stream = query.get("stream") or "All"
    if stream not in ("All", "Stdout", "Stderr"):
        raise LogRequestError(
            422, f'stream: Unsupported value: "{stream}": supported values: "All", "Stderr", "Stdout"'
        )
    return LogOptions(
        follow=_flag(query, "follow"),
        previous=_flag(query, "previous"),
        timestamps=_flag(query, "timestamps"),
        since=since,
        tail_lines=-1 if tail is None else tail,
        limit_bytes=-1 if limit is None else limit,
        stream=stream,
    )


def instance(view: PodView | None, pod_name: str, container: str, *, previous: bool) -> ContainerRecord:
    """Find the container instance of a log request. Raise LogRequestError."""
    if view is None:
        raise LogRequestError(404, f'pod "{pod_name}" does not exist')
    spec = view.pod.spec
    names = {c.name for c in (*spec.containers, *spec.init_containers)} | {c.name for c in spec.ephemeral_containers}
    if container not in names:
        raise LogRequestError(404, f'container "{container}" not found in pod "{pod_name}"')
    where = f'container "{container}" in pod "{pod_name}"'
    container_id = _container_id(view, container, where, previous=previous)
    found = next((record for record in view.containers if record.id == container_id), None)
    if found is None:
        missing = f"previous terminated {where} not found" if previous else f"{where} is not available"
        raise LogRequestError(400, missing)
    return found


def _container_id(view: PodView, container: str, where: str, *, previous: bool) -> str:
    status = _status(view.pod, container)
    if status is None:
        raise LogRequestError(400, f"{where} is not available")
    state, last = status.state or core_v1.ContainerState(), status.last_state or core_v1.ContainerState()
    last_id = _bare(last.terminated.container_id) if last.terminated else ""
    if previous:
        if not last_id:
            raise LogRequestError(400, f"previous terminated {where} not found")
        return last_id
    if state.running is not None:
        return _bare(status.container_id)
    if state.terminated is not None:
        found = _bare(state.terminated.container_id) or last_id
        if not found:
            raise LogRequestError(400, f"{where} is terminated")
        return found
    if last_id:
        return last_id
    if state.waiting is not None:
        reason = state.waiting.reason or ""
        problem = {
            "ErrImagePull": "image can't be pulled",
            "ImagePullBackOff": "trying and failing to pull image",
        }.get(reason, reason)
        raise LogRequestError(400, f"{where} is waiting to start: {problem}")
    raise LogRequestError(400, f"{where} is waiting to start - no logs yet")


def _status(pod: core_v1.Pod, container: str) -> core_v1.ContainerStatus | None:
    status = pod.status
    everything = (*status.container_statuses, *status.init_container_statuses, *status.ephemeral_container_statuses)
    return next((found for found in everything if found.name == container), None)


def _bare(container_id: str | None) -> str:
    """Cut the runtime's name off: containerd://0123… is 0123…"""
    return (container_id or "").rpartition("//")[2]


def _flag(query: Mapping[str, str], name: str) -> bool:
    return query.get(name, "").lower() in ("1", "true", "t")


def _number(query: Mapping[str, str], name: str, least: int) -> int | None:
    text = query.get(name)
    if not text:
        return None
    try:
        number = int(text)
    except ValueError as error:
        raise LogRequestError(400, f"{name}: not a number: {text!r}") from error
    if number >= 1 << 63:
        raise LogRequestError(400, f"{name}: not a number of 64 bits: {text[:30]!r}")
    if number < least:
        must = "must be greater than 0" if least else "must be greater than or equal to 0"
        raise LogRequestError(422, f"{name}: Invalid value: {number}: {must}")
    return number
