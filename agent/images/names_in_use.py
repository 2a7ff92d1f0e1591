"""Images that a node uses, by the names that containers, pods and the runtime's configuration have for them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping

from agent.images.names import BUILT_IN, InvalidImageName, with_default_tag, with_registry
from cri.messages import Image


def used_images(images: Iterable[Image], names: Iterable[str]) -> set[str]:
    """Return the IDs of the images that the names (IDs, tags or digests) mean, and of those that are made on the node."""
    wanted = set(names)
    return {i.id for i in images if i.id in wanted or wanted & {*i.repo_tags, *i.repo_digests} or _built_in(i)}


def _built_in(image: Image) -> bool:
    return any(tag.startswith(BUILT_IN) for tag in image.repo_tags)


def sandbox_image(info: Mapping[str, str]) -> str:
    """Return the sandbox image's name in the runtime's verbose status, "" where it is not reported.

    containerd before 2.0 does not pin the image, and lists no container that has it. A pod's author chooses names of images, so
    none is kept for its name alone.
    """
    with contextlib.suppress(ValueError, AttributeError):
        name = json.loads(info.get("config", "{}")).get("sandboxImage")
        return name if isinstance(name, str) else ""
    return ""


def full_name(image: str) -> str:
    """Return an image's name as the runtime lists it; "" for none."""
    with contextlib.suppress(InvalidImageName):
        image = with_default_tag(image)
    return with_registry(image) if image else ""
