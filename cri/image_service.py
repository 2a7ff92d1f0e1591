"""CRI's ImageService, one method for each call.

A pull has no deadline, as upstream: the time for a large image on a slow line is unlimited, and the caller decides what waits
for it, and cancels. Everything else has the runtime request timeout.
"""

from cri.channel import Channel
from cri.messages import (
    AuthConfig,
    FilesystemUsage,
    Image,
    ImageSpec,
    PodSandboxConfig,
    api,
)

_SERVICE = "/runtime.v1.ImageService/"


class ImageService:
    """The images of one runtime; `request_timeout` is in seconds."""

    def __init__(self, channel: Channel, request_timeout: float = 120.0) -> None:
        self._channel = channel
        self._timeout = request_timeout

    async def list_images(self, reference: str = "") -> list[Image]:
        """List all images, or the one that the reference names."""
        request = api.ListImagesRequest()
        if reference:
            request.filter.image.image = reference
        answer = await self._channel.unary(_SERVICE + "ListImages", request, api.ListImagesResponse, self._timeout)
        return list(answer.images)

    async def image_status(self, image: ImageSpec | str) -> Image | None:
        """Look an image up by ID or reference; None if the node does not have it."""
        request = api.ImageStatusRequest(image=_spec(image))
        answer = await self._channel.unary(_SERVICE + "ImageStatus", request, api.ImageStatusResponse, self._timeout)
        return answer.image if answer.HasField("image") and answer.image.id else None

    async def image_info(self, image: ImageSpec | str) -> dict[str, str]:
        """Read what the runtime adds in verbose mode (the image's configuration): JSON texts by key."""
        request = api.ImageStatusRequest(image=_spec(image), verbose=True)
        answer = await self._channel.unary(_SERVICE + "ImageStatus", request, api.ImageStatusResponse, self._timeout)
        return dict(answer.info)

    async def pull_image(
        self,
        image: ImageSpec | str,
        auth: AuthConfig | None = None,
        sandbox_config: PodSandboxConfig | None = None,
    ) -> str:
        """Pull an image and return its ID. Raise NotFoundError, UnauthenticatedError or CRIError."""
        request = api.PullImageRequest(image=_spec(image), auth=auth, sandbox_config=sandbox_config)
        answer = await self._channel.unary(_SERVICE + "PullImage", request, api.PullImageResponse, None)
        return answer.image_ref

    async def remove_image(self, image: ImageSpec | str) -> None:
        """Remove an image under all its names; idempotent."""
        request = api.RemoveImageRequest(image=_spec(image))
        await self._channel.unary(_SERVICE + "RemoveImage", request, api.RemoveImageResponse, self._timeout)

    async def image_fs_info(self) -> list[FilesystemUsage]:
        """Read how much disk the images take."""
        answer = await self._channel.unary(
            _SERVICE + "ImageFsInfo", api.ImageFsInfoRequest(), api.ImageFsInfoResponse, self._timeout
        )
        return list(answer.image_filesystems)


def _spec(image: ImageSpec | str) -> ImageSpec:
    return ImageSpec(image=image) if isinstance(image, str) else image
