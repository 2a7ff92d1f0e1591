"""Images that an administrator has loaded: `wherry image load` labels their IDs in containerd with the names of the archive.

They are open to all under these names, as far as the policy trusts preloaded images, whatever pulls were abandoned or succeed.
An ID is a name of the image in containerd, too, and a digest of its configuration, so a label opens no other content. A pull
replaces the labels of the name that is pulled, but of the ID's only CRI's own, and no pod can name an ID to be pulled. The
labels last until the image is removed, so the agent keeps no record of them.
"""

from __future__ import annotations

from agent.images.image_access import ImageAccess
from agent.images.names import LOADED, with_registry, without_tag
from cri.client import Client
from cri.errors import UnimplementedError


async def is_open(runtime: Client, access: ImageAccess, image: str, image_ref: str) -> bool:
    """Return whether a present image is open to all, also for having been loaded. Raise CRIError.

    As in pull records, a name with another tag or a digest of the same repository is the same one.
    """
    if access.open_to_all(image, image_ref):
        return True
    if not access.trusts_loaded(image):
        return False
    try:
        found = await runtime.containerd.image_name(image_ref)
    except UnimplementedError:
        return False
    loaded = [label.removeprefix(LOADED) for label in found.labels if label.startswith(LOADED)] if found else []
    return without_tag(with_registry(image)) in map(without_tag, loaded)
