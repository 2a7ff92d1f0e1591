"""Images that an administrator has loaded: `wherry image load` labels their names in containerd with the image's ID.

They are open to all under these names, whatever pulls were abandoned before. A tenant cannot set the label: containerd gives a
pulled image only labels of its own, none of the image's content or of the registry's responses. No image contains its own ID
either, which is a digest of its configuration, so a label that is copied from contents would be wrong. A pull of the name
removes the label, so the agent records what it has seen.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from agent.images.image_access import ImageAccess
from agent.images.names import LOADED, with_registry
from cri.client import Client
from cri.errors import CRIError, UnimplementedError

log = logging.getLogger(__name__)


async def loaded_names(runtime: Client) -> Mapping[str, str]:
    """Return the IDs of loaded images by their names; none from runtimes other than containerd, or if it does not answer."""
    try:
        return {found.name: found.labels[LOADED] for found in await runtime.containerd.labelled_image_names(LOADED)}
    except UnimplementedError:
        return {}
    except CRIError as error:
        log.warning("names of loaded images cannot be listed: %s", error)
        return {}


async def open_loaded(runtime: Client, access: ImageAccess, image: str, image_ref: str) -> bool:
    """Return whether a present image is open to all, also for having been loaded since the last list. Raise CRIError."""
    if access.open_to_all(image, image_ref):
        return True
    if not access.trusts_loaded(image):
        return False
    try:
        meant = await runtime.containerd.image_name(with_registry(image))
    except UnimplementedError:
        return False
    if meant is None or meant.labels.get(LOADED) != image_ref:
        return False
    found = await runtime.images.image_status(image_ref)
    names = [*found.repo_tags, *found.repo_digests] if found is not None else []
    return await asyncio.to_thread(access.loaded, image, image_ref, names)
