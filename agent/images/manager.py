"""Ensures that a container's image is present: pull policy, credentials, one pull at a time, and the reasons of failures.

The reasons become the container's waiting state, where people and tools look for them: InvalidImageName, ErrImageNeverPull,
ImageInspectError, ErrImagePull, and ImagePullBackOff while the next try waits (10 s doubling to 5 min, by pod and image). Pulls
are serial by default, so that two large images do not share one slow disk (pull_slots.py).

An image's status has all its names, which may be megabytes: few are received at a time, round robin over namespaces.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from agent.backoff import BackOff
from agent.images.credentials.keyring import Keyring
from agent.images.image_access import ImageAccess
from agent.images.list_limit import MOST_BESIDE_NAMES, beside_names
from agent.images.loaded_images import is_open
from agent.images.names import BUILT_IN, LONGEST, InvalidImageName, split, with_default_tag
from agent.images.pull_slots import Origin, PullSlots
from agent.images.recorded_pulls import RecordedPulls
from agent.images.registry_auth import sources
from agent.metrics.kubelet_metrics import KubeletMetrics, size_class
from agent.metrics.pod_startup import PodStartupTracker
from agent.podspec.security import AnyContainer, ImageUser
from cri.client import Client
from cri.errors import CRIError
from cri.messages import Image, PodSandboxConfig
from cri.texts import NAME, shortened
from kube import duration
from kube.api import core_v1
from kube.clock import SYSTEM, Clock
from kube.events import NORMAL, WARNING, EventRecorder
from kube.serving.fair_queue import Slots

RECHECK_SECONDS = 1.0
"""Time that ErrImagePull is shown before ImagePullBackOff."""
STATUSES = 4
"""Requests for statuses of present images in progress."""
UNUSABLE_SECONDS = 60.0
"""Time until a name or an image that cannot be used is inspected again."""


class ImageError(Exception):
    """The container's image is not available; `reason` and message are for its waiting state.

    `retry_at`: when to try again, by the monotonic clock.
    """

    def __init__(self, reason: str, message: str, retry_at: float) -> None:
        super().__init__(message)
        self.reason, self.message, self.retry_at = reason, message, retry_at


@dataclass(frozen=True, slots=True)
class PresentImage:
    """An image on the node: the runtime's ID and the user that it runs as."""

    id: str
    user: ImageUser
    text_bytes: int = 0
    """Bytes of the image in the runtime's list without its names."""

    @classmethod
    def of(cls, image: Image) -> PresentImage:
        return cls(image.id, _user(image), beside_names(image))


class Images:
    """Makes images present for containers."""

    def __init__(
        self,
        runtime: Client,
        recorder: EventRecorder,
        *,
        parallel: int = 1,
        back_off_max: float = 300.0,
        keyring: Keyring,
        access: ImageAccess,
        metrics: KubeletMetrics,
        startup: PodStartupTracker,
        clock: Clock = SYSTEM,
    ) -> None:
        """`parallel`: pulls at a time, except those that take long (pull_slots.py); 0 is no limit."""
        self._metrics, self._startup = metrics, startup
        self._keyring, self._access = keyring, access
        self._runtime, self._images, self._pulls = runtime, runtime.images, RecordedPulls(runtime, access)
        self._recorder, self._clock = recorder, clock
        self._slots = PullSlots(parallel, clock)
        self._statuses = Slots(STATUSES)
        self._back_off = BackOff(10.0, back_off_max)
        self._last_error: dict[str, str] = {}

    async def ensure(
        self,
        pod: core_v1.Pod,
        container: AnyContainer,
        field_path: str,
        secrets: Sequence[core_v1.Secret],
        sandbox: PodSandboxConfig,
    ) -> PresentImage:
        """Have the container's image on the node by its pull policy. Raise ImageError."""
        name = container.image or ""
        now = self._now()
        try:
            full = with_default_tag(name)
        except InvalidImageName as error:
            shown = name[:LONGEST]
            message = f'Failed to apply default image tag "{shown}": couldn\'t parse image name "{shown}": {error}'
            self._event(pod, field_path, WARNING, "InspectFailed", message)
            raise ImageError("InvalidImageName", message, now + UNUSABLE_SECONDS) from error
        present = await self._inspect(pod, name, full, field_path)
        policy = "Never" if full.startswith(BUILT_IN) else container.image_pull_policy or "IfNotPresent"
        if present is not None and policy != "Always" and await self._may_use(pod, full, present.id, secrets):
            message = f'Container image "{name}" already present on machine and can be accessed by the pod'
            self._event(pod, field_path, NORMAL, "Pulled", message)
            return self._usable(pod, name, present, field_path)
        if policy == "Never":
            message = f'Container image "{name}" is not present with pull policy of Never'
            self._event(pod, field_path, WARNING, "ErrImageNeverPull", message)
            raise ImageError("ErrImageNeverPull", message, now + 10.0)
        return await self._pull(pod, name, full, field_path, secrets, sandbox)

    async def _may_use(self, pod: core_v1.Pod, full: str, image_ref: str, secrets: Sequence[core_v1.Secret]) -> bool:
        """Return whether the pod may use a present image without a request to the registry."""
        with contextlib.suppress(CRIError):
            if await is_open(self._runtime, self._access, full, image_ref):
                return True
        found = await self._keyring.find(pod, full, secrets)
        return await asyncio.to_thread(self._access.allows, full, image_ref, found)

    async def _inspect(self, pod: core_v1.Pod, name: str, full: str, field_path: str) -> PresentImage | None:
        try:
            async with self._statuses.slot(pod.metadata.namespace or ""):
                image = await self._images.image_status(full)
                return PresentImage.of(image) if image is not None else None
        except CRIError as error:
            message = f'Failed to inspect image "{name}": {error.grpc_text()}'
            self._event(pod, field_path, WARNING, "InspectFailed", message)
            raise ImageError("ImageInspectError", message, self._now() + 5.0) from error

    def _usable(self, pod: core_v1.Pod, name: str, image: PresentImage, field_path: str) -> PresentImage:
        """Raise ImageError for an image that would make the runtime's list of images too large for as long as it is used."""
        if image.text_bytes > MOST_BESIDE_NAMES:
            message = (
                f'Failed to inspect image "{name}": its user and annotations have more than {MOST_BESIDE_NAMES} bytes'
            )
            self._event(pod, field_path, WARNING, "InspectFailed", message)
            raise ImageError("ImageInspectError", message, self._now() + UNUSABLE_SECONDS)
        return image

    async def _pull(
        self,
        pod: core_v1.Pod,
        name: str,
        full: str,
        field_path: str,
        secrets: Sequence[core_v1.Secret],
        sandbox: PodSandboxConfig,
    ) -> PresentImage:
        key = f"{pod.metadata.uid}_{name}"
        now = self._now()
        ready = self._back_off.ready_at_since_update(key, now)
        if ready > now:
            grounds = f"next attempt in {duration.render(ready - now)}"
            self._event(pod, field_path, NORMAL, "BackOff", f'Back-off pulling image "{name}"', grounds)
            last = self._last_error.get(key, "")
            message = f'Back-off pulling image "{name}"' + (f": ErrImagePull: {last}" if last else "")
            raise ImageError("ImagePullBackOff", message, ready)
        self._event(pod, field_path, NORMAL, "Pulling", f'Pulling image "{name}"')
        requested, requested_at = self._now(), self._clock.now().timestamp()
        async with self._slots.slot(Origin(pod.metadata.namespace or "", split(full)[0])):
            began = self._now()
            try:
                credentials = await self._keyring.find(pod, full, secrets)
                namespace = pod.metadata.namespace or ""
                found, used = await self._pulls.get(full, credentials, sandbox, namespace)
            except CRIError as error:
                text, at = error.grpc_text(), self._now()
                delay = duration.render(self._back_off.next(key, at))
                grounds = f"{sources(credentials)}, next attempt in {delay}"
                self._event(pod, field_path, WARNING, "Failed", f'Failed to pull image "{name}": {text}', grounds)
                self._last_error[key] = text
                raise ImageError("ErrImagePull", text, at + RECHECK_SECONDS) from error
        ended = self._now()
        self._metrics.pull_seconds.observe(ended - began, size_class(found.size))
        self._startup.image_pulled(pod.metadata.uid or "", requested_at, self._clock.now().timestamp())
        self._back_off.collect(self._now())
        self._last_error.pop(key, None)
        times = f"{duration.render(ended - began)} ({duration.render(ended - requested)} including waiting)"
        message = f'Successfully pulled image "{name}" in {times}. Image size: {found.size} bytes.'
        self._event(pod, field_path, NORMAL, "Pulled", message, sources([used] if used is not None else []))
        return self._usable(pod, name, PresentImage.of(found), field_path)

    def forget(self, uid: str) -> None:
        """Forget a pod's failures and tokens."""
        self._keyring.forget(uid)
        for key in [key for key in self._last_error if key.startswith(f"{uid}_")]:
            del self._last_error[key]
            self._back_off.reset(key)

    def _event(
        self, pod: core_v1.Pod, field_path: str, kind: str, reason: str, message: str, grounds: str = ""
    ) -> None:
        self._recorder.event(pod, kind, reason, message, field_path=field_path, grounds=grounds)

    def _now(self) -> float:
        return self._clock.monotonic()


def _user(image: Image) -> ImageUser:
    return ImageUser(image.uid.value if image.HasField("uid") else None, shortened(image.username, NAME))
