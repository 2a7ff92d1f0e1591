"""Pulls of images with each of a pod's credentials, and the records of what they have brought (image_access.py)."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Sequence

from agent.images.image_access import ImageAccess
from agent.images.open_pulls import Pull
from agent.images.registry_auth import Credential
from cri.client import Client
from cri.errors import CRIError
from cri.messages import Image, ImageSpec, PodSandboxConfig

_UNRESOLVED = re.compile(r'failed to pull (?:and unpack )?image "[^"]*": failed to resolve (?:reference|image)\b')
"""Start of containerd's error for a name that it could not find at the registry, or without the right to."""


class RecordedPulls:
    """Pulls by a runtime."""

    def __init__(self, runtime: Client, access: ImageAccess) -> None:
        self._access, self._images, self._containerd = access, runtime.images, runtime.containerd

    async def get(
        self, full: str, credentials: Sequence[Credential], sandbox: PodSandboxConfig, namespace: str = ""
    ) -> tuple[Image, Credential | None]:
        """Pull for a pod of a namespace, and write the pull record; return the image and its credential. Raise CRIError."""
        as_of = self._access.removals
        present = await self._images.image_status(full)  # now: it may have been collected while the pull waited
        pull = await self._begin(full, present.id if present is not None else "", as_of, namespace)
        without_image, errors = False, list[CRIError]()
        try:
            try:
                credential, image_ref = await self._try(full, credentials, sandbox, errors)
            except CRIError:
                without_image = not await self._may_have_come(full, pull, errors)
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
        return found, credential

    async def _begin(self, full: str, before: str, as_of: int, namespace: str) -> Pull:
        """Write the intent of a pull; if the pull is cancelled meanwhile, forget it as soon as the thread has written it."""
        writing = asyncio.ensure_future(asyncio.to_thread(self._access.begin, full, before, as_of, namespace))

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

    async def _may_have_come(self, full: str, pull: Pull, errors: Sequence[CRIError]) -> bool:
        """Return whether a pull whose tries all failed may have brought the image, or may still."""
        if all(map(_brought_nothing, errors)):
            return False
        if not all(error.final for error in errors):
            return True
        try:
            found = await self._images.image_status(full)
        except CRIError:
            return True
        return found is not None and not self._access.had(pull, found.id)

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


def _brought_nothing(error: CRIError) -> bool:
    """Return whether a failed pull did not go as far as to receive the image; containerd says so."""
    return error.final and _UNRESOLVED.match(error.message) is not None
