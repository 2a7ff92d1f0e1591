"""Builds the image manager, with the keyring, credential plugins, pull records and garbage collection."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence

from agent.assembly.base import Base
from agent.config import AgentConfig
from agent.images.credentials import configuration
from agent.images.credentials.keyring import DOCKER_CONFIG, Keyring
from agent.images.credentials.plugin import Plugin, PluginError
from agent.images.image_access import ImageAccess
from agent.images.loaded_images import is_open
from agent.images.manager import Images
from agent.kubelet_configuration import ConfigError
from agent.metrics.pod_startup import PodStartupTracker
from agent.volumes.payload import VolumeError
from agent.volumes.tokens import TokenCache
from cri.client import Client as RuntimeClient
from cri.errors import CRIError
from kube.api import core_v1
from kube.client import Client
from kube.clock import Clock, format_time
from kube.events import WARNING

log = logging.getLogger(__name__)

SHOWN = 255
"""Characters of an image's name in the event about it."""


async def build_images(base: Base, startup: PodStartupTracker) -> tuple[Images, ImageAccess]:
    """Return the image manager, and the records that decide which pods may use a present image. Raise ConfigError."""
    config, clock, loop = base.config, base.clock, asyncio.get_running_loop()

    def closed(name: str, image_ref: str, namespaces: Sequence[str]) -> None:
        asyncio.run_coroutine_threadsafe(_report_closed(base, access, name, image_ref, namespaces), loop)

    settings = config.images
    access = ImageAccess(
        config.root_dir / "image_manager",
        lambda: format_time(clock.now()),
        settings.verification,
        settings.allowlist,
        closed=closed,
    )
    await asyncio.to_thread(access.load)
    images = Images(
        base.runtime.client,
        base.recorder,
        parallel=1 if settings.serialize_pulls else settings.max_parallel_pulls,
        back_off_max=config.back_off_max,
        keyring=_keyring(config, base.client, clock),
        access=access,
        metrics=base.metrics,
        startup=startup,
        clock=clock,
    )
    return images, access


async def _report_closed(base: Base, access: ImageAccess, name: str, image_ref: str, namespaces: Sequence[str]) -> None:
    """Log, and emit an event about the node, that pods have to pull an image that an administrator may have loaded."""
    with contextlib.suppress(CRIError):
        if await is_open(base.runtime.client, access, name, image_ref):
            return
    of = f" of pods in {', '.join(namespaces)}" if namespaces else ""
    text = (
        f"Image {name[:SHOWN]} ({image_ref}) may come from an abandoned pull{of}: pods need credentials that pull it. "
        "If an administrator loaded it, `wherry image load` of the same archive opens it to all pods"
    )
    log.warning("%s", text)
    node = base.config.node_name
    base.recorder.event(core_v1.ObjectReference(kind="Node", name=node, uid=node), WARNING, "ImageClosed", text)


def _keyring(config: AgentConfig, client: Client, clock: Clock) -> Keyring:
    """Return the node's keyring with the plugins that the flags name. Raise ConfigError, also where a program is missing."""
    settings = config.images
    files = [
        config.root_dir / DOCKER_CONFIG,
        *([settings.registry_credentials] if settings.registry_credentials else []),
    ]
    if settings.credential_providers is None or settings.credential_provider_dir is None:
        return Keyring(files)
    tokens = TokenCache(client, clock=clock)

    async def token(pod: core_v1.Pod, audience: str) -> str:
        wanted = core_v1.ServiceAccountTokenProjection(audience=audience, path="")
        try:
            return (await tokens.get(pod, wanted)).text
        except VolumeError as error:
            raise PluginError(str(error)) from error

    plugins = []
    for provider in configuration.load(settings.credential_providers):
        program = settings.credential_provider_dir / provider.name
        if not program.is_file():
            raise ConfigError(f"plugin binary executable {program} did not exist")
        plugins.append(Plugin(provider, settings.credential_provider_dir, client, token, clock))
    return Keyring(files, plugins, tokens.forget)


async def load_finished_pulls(access: ImageAccess, runtime: RuntimeClient) -> None:
    """Complete the records of the last agent's finished pulls.

    If images cannot be listed, image garbage collection completes them; until then these images require credentials.
    """
    try:
        images = await runtime.images.list_images()
    except CRIError as error:
        log.error("images cannot be listed, those that were being pulled require credentials: %s", error)
        return
    names = [(image.id, [*image.repo_tags, *image.repo_digests]) for image in images]
    await asyncio.to_thread(access.load_finished_pulls, names)
