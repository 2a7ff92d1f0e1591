"""containerd's own services beside CRI, on the same socket: containers, snapshots, leases and image names of CRI's namespace.

Containers are received one by one, because each comes with its OCI specification, which holds its environment: a list of a few
containers may be larger than a message.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message

from cri.channel import Channel
from cri.errors import MessageTooLargeError, NotFoundError
from cri.messages import containerd_containers, containerd_images, containerd_leases, containerd_snapshots

NAMESPACE = "k8s.io"
"""CRI's containers and sandboxes live in this containerd namespace."""
_METADATA = (("containerd-namespace", NAMESPACE),)
_SECONDS = 30.0
_EXPIRES = "containerd.io/gc.expire"
_KIND = "io.cri-containerd.kind"
"""Label of the containers that CRI creates, of sandboxes, too."""
_IMAGE_ID, _HEX = "sha256:", "0123456789abcdef"
"""Start of the IDs of images, which are names of them too, and the digits that follow."""
_PINNED = "io.cri-containerd.pinned"


@dataclass(frozen=True, slots=True)
class ContainerRecord:
    """A container in containerd's metadata."""

    id: str
    created: float
    """By the wall clock, in seconds since 1970."""
    by_cri: bool
    """True if CRI created it; others are those of `ctr` and of other clients."""
    snapshotter: str
    snapshot: str


@dataclass(frozen=True, slots=True)
class ImageName:
    """A name of an image, or its ID."""

    name: str
    target: str
    """Digest of the manifest that it means: other names of an image have the same."""
    created: float
    """By the wall clock, in seconds since 1970."""
    pinned: bool
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Lease:
    """Lease that protects content and snapshots from containerd's garbage collection."""

    id: str
    created: float
    """By the wall clock, in seconds since 1970."""
    expires: bool
    """True if it ends by itself, as those of containerd's own operations do."""


class ContainerdService:
    """Reads what CRI does not show. Raise UnimplementedError from runtimes other than containerd."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    async def containers(self, known: Iterable[str] = ()) -> list[ContainerRecord]:
        """List the containers, those of sandboxes included, without those of the IDs in `known`. Raise CRIError."""
        return await self._containers(",".join(f'id!="{id}"' for id in known))

    async def container(self, id: str) -> ContainerRecord | None:
        """Return one container, None if there is none of the ID. Raise CRIError."""
        return next(iter(await self._containers(f'id=="{id}"')), None)

    async def containers_of_others(self) -> list[ContainerRecord]:
        """List the containers that CRI did not create. Raise CRIError."""
        return await self._containers(",".join(f'labels."{_KIND}"!={kind}' for kind in ("container", "sandbox")))

    async def _containers(self, selected: str) -> list[ContainerRecord]:
        answers = self._channel.stream(
            "/containerd.services.containers.v1.Containers/ListStream",
            containerd_containers.ListContainersRequest(filters=[selected] if selected else []),
            containerd_containers.ListContainerMessage,
            _SECONDS,
            _METADATA,
        )
        return [_record(answer.container) async for answer in answers]

    async def delete_container(self, container: ContainerRecord) -> None:
        """Delete a container and its snapshot, if there are any. Raise CRIError."""
        await self._delete(
            "/containerd.services.containers.v1.Containers/Delete",
            containerd_containers.DeleteContainerRequest(id=container.id),
        )
        if container.snapshot:
            await self._delete(
                "/containerd.services.snapshots.v1.Snapshots/Remove",
                containerd_snapshots.RemoveSnapshotRequest(snapshotter=container.snapshotter, key=container.snapshot),
            )

    async def _delete(self, rpc: str, request: Message) -> None:
        with contextlib.suppress(NotFoundError):
            await self._channel.unary(rpc, request, Empty, _SECONDS, _METADATA)

    async def leases(self) -> list[Lease]:
        """List the leases. Raise CRIError."""
        answer = await self._channel.unary(
            "/containerd.services.leases.v1.Leases/List",
            containerd_leases.ListRequest(),
            containerd_leases.ListResponse,
            _SECONDS,
            _METADATA,
        )
        return [
            Lease(lease.id, lease.created_at.ToNanoseconds() / 1e9, _EXPIRES in lease.labels) for lease in answer.leases
        ]

    async def delete_lease(self, lease_id: str) -> None:
        """Delete a lease; returns once containerd has collected what only the lease kept. Raise CRIError."""
        request = containerd_leases.DeleteRequest(id=lease_id, sync=True)
        await self._channel.unary("/containerd.services.leases.v1.Leases/Delete", request, Empty, _SECONDS, _METADATA)

    async def image_ids(self, start: str = _IMAGE_ID) -> list[ImageName]:
        """List the IDs of all images, in parts if they are too large for a message. Raise CRIError."""
        try:
            return await self.image_names(start)
        except MessageTooLargeError:
            return [image for digit in _HEX for image in await self.image_ids(start + digit)]

    async def image_names(self, start: str) -> list[ImageName]:
        """List the names of images that begin with a text of letters, digits, colons, slashes and dots. Raise CRIError."""
        selected = f'name~="^{start.replace(".", "[.]")}"'
        answer = await self._channel.unary(
            "/containerd.services.images.v1.Images/List",
            containerd_images.ListImagesRequest(filters=[selected]),
            containerd_images.ListImagesResponse,
            _SECONDS,
            _METADATA,
        )
        return [_image_name(each) for each in answer.images]

    async def image_name(self, name: str) -> ImageName | None:
        """Return what a name of an image means, None if there is none. Raise CRIError."""
        try:
            answer = await self._channel.unary(
                "/containerd.services.images.v1.Images/Get",
                containerd_images.GetImageRequest(name=name),
                containerd_images.GetImageResponse,
                _SECONDS,
                _METADATA,
            )
        except NotFoundError:
            return None
        return _image_name(answer.image)

    async def delete_image_name(self, name: str) -> None:
        """Delete a name of an image, which stays under its others. Raise CRIError."""
        path = "/containerd.services.images.v1.Images/Delete"
        await self._delete(path, containerd_images.DeleteImageRequest(name=name))


def _record(container: containerd_containers.Container) -> ContainerRecord:
    return ContainerRecord(
        container.id,
        container.created_at.ToNanoseconds() / 1e9,
        _KIND in container.labels,
        container.snapshotter,
        container.snapshot_key,
    )


def _image_name(image: containerd_images.Image) -> ImageName:
    created = image.created_at.ToNanoseconds() / 1e9
    return ImageName(image.name, image.target.digest, created, _PINNED in image.labels, dict(image.labels))
