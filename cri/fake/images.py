"""The fake's images: those on the node, and those in its "registry".

An image's ID is a digest of its name, so it is the same in every test. Names are listed as containerd lists them
(docker.io/library/…:latest), whatever their spelling in a request.
"""

import hashlib
import re
from typing import Any

import grpc

from cri.fake.failures import RPCError
from cri.messages import FilesystemIdentifier, FilesystemUsage, Image, UInt64Value, api

_SIZE = 2_000_000


class FakeImages:
    """ImageService over two dictionaries: `local` and `registry`, by full reference."""

    def __init__(self) -> None:
        self.local: dict[str, Image] = {}
        self.registry: dict[str, Image] = {}
        self.credentials: dict[str, tuple[str, str]] = {}  # reference -> user name and password it requests

    def add(self, reference: str) -> Image:
        """Put an image on the node, as `ctr images import` would."""
        full = normalize(reference)
        self.local[full] = image = _image(full)
        return image

    def publish(self, reference: str, credentials: tuple[str, str] | None = None) -> None:
        """Put an image into the registry, for pulling."""
        full = normalize(reference)
        self.registry[full] = _image(full)
        if credentials:
            self.credentials[full] = credentials

    def find(self, reference: str) -> Image | None:
        """Look an image up by ID, ID without its prefix, or reference."""
        for image in self.local.values():
            if reference in (image.id, image.id.removeprefix("sha256:")):
                return image
        return self.local.get(normalize(reference))

    async def list_images(self, request: Any) -> Any:
        """Answer ListImages."""
        wanted = request.filter.image.image
        found = [self.find(wanted)] if wanted else list(self.local.values())
        return api.ListImagesResponse(images=[image for image in found if image is not None])

    async def image_status(self, request: Any) -> Any:
        """Answer ImageStatus."""
        return api.ImageStatusResponse(image=self.find(request.image.image))

    async def pull_image(self, request: Any) -> Any:
        """Answer PullImage from the registry."""
        reference = request.image.image
        full = normalize(reference)
        image = self.registry.get(full)
        failed = f'failed to pull and unpack image "{full}": failed to resolve reference "{full}": '
        if image is None:
            raise RPCError(grpc.StatusCode.NOT_FOUND, f"{failed}{full}: not found")
        wanted = self.credentials.get(full)
        if wanted is not None and wanted != (request.auth.username, request.auth.password):
            raise RPCError(grpc.StatusCode.UNKNOWN, f"{failed}unexpected status code: 401 Unauthorized")
        self.local[full] = image
        return api.PullImageResponse(image_ref=image.id)

    async def remove_image(self, request: Any) -> Any:
        """Answer RemoveImage; all names of the image go."""
        image = self.find(request.image.image)
        if image is not None:
            self.local = {name: other for name, other in self.local.items() if other.id != image.id}
        return api.RemoveImageResponse()

    async def image_fs_info(self, request: Any) -> Any:
        """Answer ImageFsInfo."""
        usage = FilesystemUsage(
            timestamp=1,
            fs_id=FilesystemIdentifier(mountpoint="/"),
            used_bytes=UInt64Value(value=_SIZE * len(self.local)),
            inodes_used=UInt64Value(value=10 * len(self.local)),
        )
        return api.ImageFsInfoResponse(image_filesystems=[usage])


def normalize(reference: str) -> str:
    """Complete an image name: nginx and index.docker.io/nginx are docker.io/library/nginx:latest. A digest replaces a tag."""
    if not re.match(r"[^/]*[.:A-Z][^/]*/|localhost/", reference):
        reference = f"docker.io/{reference}"
    reference = re.sub(r"^index\.docker\.io/", "docker.io/", reference)
    reference = re.sub(r"^docker\.io/(?=[^/]+$)", "docker.io/library/", reference)
    reference = re.sub(r":[^/:@]+@", "@", reference)
    return reference if re.search(r":[^/]+$", reference) else f"{reference}:latest"


def _image(full: str) -> Image:
    digest = "sha256:" + hashlib.sha256(full.encode()).hexdigest()
    repository = re.sub(r"(@.*|:[^/]+)$", "", full)
    return Image(
        id=digest,
        repo_tags=[] if "@" in full else [full],
        repo_digests=[f"{repository}@{digest}"],
        size=_SIZE,
    )
