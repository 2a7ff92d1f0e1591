"""Records of pulled images as the agent keeps them, and credentials to pull with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent.images.image_access import ImageAccess
from agent.images.open_pulls import Pull
from agent.images.registry_auth import ACCOUNT, SECRET, Credential, Source
from cri.containerd_service import ImageName
from cri.errors import CRIError, UnimplementedError
from cri.messages import Image

ID, IMAGE = "sha256:abc", "r.test/app:1"
NOW = "2026-01-02T03:04:05Z"


class Records(ImageAccess):
    """Records to whose pulls tests refer by the names of images: the one that began last ends first."""

    _by_name: dict[str, list[Pull]]

    def begin(self, image: str, before: str = "", as_of: int | None = None, namespace: str = "") -> Pull:
        pull = super().begin(image, before, as_of, namespace)
        self.__dict__.setdefault("_by_name", {}).setdefault(image, []).append(pull)
        return pull

    def failed(self, pull: Pull | str) -> None:
        super().failed(self._pull(pull))
        self.tidy()

    def abandoned(self, pull: Pull | str) -> None:
        super().abandoned(self._pull(pull))

    def got(self, image: str, image_ref: str, credential: Credential | None, names: Sequence[str] = ()) -> None:
        """Record what the last pull of an image has brought."""
        self.pulled(self._pull(image), image, image_ref, credential, names)

    def _pull(self, pull: Pull | str) -> Pull:
        return pull if isinstance(pull, Pull) else self._by_name[pull].pop()


def made(folder: Path, policy: str = "NeverVerifyPreloadedImages", *allowed: str) -> Records:
    records = Records(folder, lambda: NOW, policy, allowed)
    records.load()
    return records


def by_secret(name: str, password: str = "p") -> Credential:
    return Credential("r.test", "u", password, source=Source(SECRET, f"uid-{name}", "ns", name))


def by_account(name: str) -> Credential:
    return Credential("r.test", "u", "p", source=Source(ACCOUNT, f"uid-{name}", "ns", name))


def pull(records: Records, credential: Credential | None, image: str = IMAGE) -> None:
    records.begin(image)
    records.got(image, ID, credential)


class Pulls:
    """A runtime that pulls or fails. It has `before` of the image, and `present` from the pull on. Pulls list no images."""

    def __init__(self, pull: CRIError | None, present: str | CRIError | None, before: str = "") -> None:
        self.pull, self.present, self.before = pull, present, before
        self.has_pulled = False

    async def pull_image(self, *_: Any, **__: Any) -> str:
        self.has_pulled = True
        if self.pull is not None:
            raise self.pull
        return ""

    async def image_status(self, name: str) -> Image | None:
        found = self.present if self.has_pulled else self.before
        if isinstance(found, CRIError):
            raise found
        return Image(id=found) if found else None

    async def image_name(self, name: str) -> ImageName | None:
        raise UnimplementedError("no containerd", code="UNIMPLEMENTED")
