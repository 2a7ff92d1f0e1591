"""Ensures that a container's image is present: pull policy, credentials, one pull at a time, and the reasons of failures.

The reasons become the container's waiting state, where people and tools look for them: InvalidImageName, ErrImageNeverPull,
ImageInspectError, ErrImagePull, and ImagePullBackOff while the next try waits (10 s doubling to 5 min, by pod and image). Pulls
are serial by default, so that two large images do not share one slow disk (pull_slots.py).

An image's status has all its names, which may be megabytes: few are received at a time, round robin over namespaces.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from agent.backoff import BackOff
from agent.images.credentials.keyring import Keyring
from agent.images.image_access import ImageAccess
from agent.images.list_limit import MOST_BESIDE_NAMES, beside_names
from agent.images.names import BUILT_IN, LONGEST, InvalidImageName, split, with_default_tag
from agent.images.pull_intents import Pull
from agent.images.pull_slots import Origin, PullSlots
from agent.images.registry_auth import Credential
from agent.metrics.kubelet_metrics import KubeletMetrics, size_class
from agent.metrics.pod_startup import PodStartupTracker
from agent.podspec.security import AnyContainer, ImageUser
from cri.client import Client
from cri.errors import CRIError
from cri.messages import Image, ImageSpec, PodSandboxConfig
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
_UNRESOLVED = re.compile(r'failed to pull (?:and unpack )?image "[^"]*": failed to resolve (?:reference|image)\b')
"""Start of containerd's error for a name that it could not find at the registry, or without the right to."""
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
        self._images, self._containerd = runtime.images, runtime.containerd
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
        before = present.id if present is not None else ""
        return await self._pull(pod, name, full, field_path, secrets, sandbox, before)

    async def _may_use(self, pod: core_v1.Pod, full: str, image_ref: str, secrets: Sequence[core_v1.Secret]) -> bool:
        """Return whether the pod may use a present image without a request to the registry."""
        if self._access.open_to_all(full, image_ref):
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
        before: str,
    ) -> PresentImage:
        key = f"{pod.metadata.uid}_{name}"
        now = self._now()
        ready = self._back_off.ready_at_since_update(key, now)
        if ready > now:
            self._event(pod, field_path, NORMAL, "BackOff", f'Back-off pulling image "{name}"')
            last = self._last_error.get(key, "")
            message = f'Back-off pulling image "{name}"' + (f": ErrImagePull: {last}" if last else "")
            raise ImageError("ImagePullBackOff", message, ready)
        self._event(pod, field_path, NORMAL, "Pulling", f'Pulling image "{name}"')
        requested, requested_at = self._now(), self._clock.now().timestamp()
        async with self._slots.slot(Origin(pod.metadata.namespace or "", split(full)[0])):
            began = self._now()
            try:
                found = await self._get(full, await self._keyring.find(pod, full, secrets), sandbox, before)
            except CRIError as error:
                text = error.grpc_text()
                self._event(pod, field_path, WARNING, "Failed", f'Failed to pull image "{name}": {text}')
                at = self._now()
                self._back_off.next(key, at)
                self._last_error[key] = text
                raise ImageError("ErrImagePull", text, at + RECHECK_SECONDS) from error
        ended = self._now()
        self._metrics.pull_seconds.observe(ended - began, size_class(found.size))
        self._startup.image_pulled(pod.metadata.uid or "", requested_at, self._clock.now().timestamp())
        self._back_off.collect(self._now())
        self._last_error.pop(key, None)
        times = f"{duration.render(ended - began)} ({duration.render(ended - requested)} including waiting)"
        message = f'Successfully pulled image "{name}" in {times}. Image size: {found.size} bytes.'
        self._event(pod, field_path, NORMAL, "Pulled", message)
        return self._usable(pod, name, PresentImage.of(found), field_path)

    async def _get(
        self, full: str, credentials: Sequence[Credential], sandbox: PodSandboxConfig, before: str = ""
    ) -> Image:
        """Pull, and write the pull record; `before` is the ID of the image that the node had of this name. Raise CRIError."""
        pull = await self._begin(full, before)
        without_image, errors = False, list[CRIError]()
        try:
            try:
                credential, image_ref = await self._try(full, credentials, sandbox, errors)
            except CRIError:
                without_image = not await self._may_have_come(full, before, errors)
                raise
            by_ref = await self._images.image_status(image_ref) if image_ref else None
            found = by_ref or await self._images.image_status(full)  # the tag may have moved meanwhile
            if found is None:
                raise CRIError(f"image {full} is not there after it was pulled", code="NOT_FOUND")
            names_are_exact = await self._is_of_containerd(found.id)
        except BaseException:
            if without_image:
                self._access.failed(pull)
                await asyncio.to_thread(self._access.tidy)
            else:  # the image is present, or the runtime may finish the pull
                self._access.abandoned(pull)
            raise
        await asyncio.to_thread(
            self._access.pulled,
            pull,
            full,
            found.id,
            credential,
            [*found.repo_tags, *found.repo_digests],
            names_are_exact=names_are_exact,
            is_all=all(map(_brought_nothing, errors)) and (by_ref is not None or not image_ref),
        )
        return found

    async def _begin(self, full: str, before: str) -> Pull:
        """Write the intent of a pull; if the pull is cancelled meanwhile, forget it as soon as the thread has written it."""
        writing = asyncio.ensure_future(asyncio.to_thread(self._access.begin, full, before))

        def withdraw(_: object) -> None:
            if not writing.cancelled() and writing.exception() is None:
                self._access.failed(writing.result())

        try:
            return await asyncio.shield(writing)
        except asyncio.CancelledError:
            writing.add_done_callback(withdraw)
            raise

    async def _is_of_containerd(self, image_ref: str) -> bool:
        """Return whether the runtime is containerd, which lists an image under the name that is pulled and no other."""
        with contextlib.suppress(CRIError):
            return await self._containerd.image_name(image_ref) is not None
        return False

    async def _may_have_come(self, full: str, before: str, errors: Sequence[CRIError]) -> bool:
        """Return whether a pull whose tries all failed may have brought the image, or may still."""
        if all(map(_brought_nothing, errors)):
            return False
        if not all(error.final for error in errors):
            return True
        try:
            found = await self._images.image_status(full)
        except CRIError:
            return True
        return found is not None and found.id != before

    async def _try(
        self, full: str, credentials: Sequence[Credential], sandbox: PodSandboxConfig, errors: list[CRIError]
    ) -> tuple[Credential | None, str]:
        """Pull with each of the credentials until one does, without any where there are none.

        Return the credential and the runtime's reference to the image. Errors are added to `errors`; raise the last one.
        """
        tries: list[Credential | None] = [*credentials] or [None]
        for credential in tries:
            try:
                return credential, await self._pull_with(full, credential, sandbox)
            except CRIError as error:
                errors.append(error)
        raise errors[-1]

    async def _pull_with(self, full: str, credential: Credential | None, sandbox: PodSandboxConfig) -> str:
        auth = credential.auth() if credential is not None else None
        return await self._images.pull_image(ImageSpec(image=full), auth=auth, sandbox_config=sandbox)

    def forget(self, uid: str) -> None:
        """Forget a pod's failures and tokens."""
        self._keyring.forget(uid)
        for key in [key for key in self._last_error if key.startswith(f"{uid}_")]:
            del self._last_error[key]
            self._back_off.reset(key)

    def _event(self, pod: core_v1.Pod, field_path: str, kind: str, reason: str, message: str) -> None:
        self._recorder.event(pod, kind, reason, message, field_path=field_path)

    def _now(self) -> float:
        return self._clock.monotonic()


def _brought_nothing(error: CRIError) -> bool:
    """Return whether a failed pull did not go as far as to receive the image; containerd says so."""
    return error.final and _UNRESOLVED.match(error.message) is not None


def _user(image: Image) -> ImageUser:
    return ImageUser(image.uid.value if image.HasField("uid") else None, shortened(image.username, NAME))
