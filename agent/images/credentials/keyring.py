"""All credentials that an image may be pulled with, in the order in which they are tried.

The pod's secrets come first, the most specific address before others, then the node's own: its docker configuration
(config.json in the agent's directory) and the answers of plugins (pkg/credentialprovider: UnionDockerKeyring).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from agent import threads
from agent.images import registry_auth
from agent.images.credentials.plugin import Plugin
from agent.images.pull_secrets import PullSecrets
from agent.images.registry_auth import NODE, Credential, Source
from kube.api import core_v1

DOCKER_CONFIG = "config.json"


class Keyring:
    """Credentials for pods' images; `folder` is the agent's own."""

    def __init__(
        self, folder: Path, plugins: Sequence[Plugin] = (), forget: Callable[[str], None] = lambda uid: None
    ) -> None:
        self._file, self._plugins = folder / DOCKER_CONFIG, plugins
        self._secrets = PullSecrets()
        self.forget = forget
        """Drops what is kept for a pod, by its UID."""

    async def find(self, pod: core_v1.Pod, image: str, secrets: Sequence[core_v1.Secret]) -> list[Credential]:
        """Return what to try for an image, best first; none means without credentials. Raise OSError (EAGAIN)."""
        found = await self._of_secrets(pod, image, secrets) if secrets else []
        own = await asyncio.to_thread(self._docker_config)
        for answers in await asyncio.gather(*(plugin.credentials(pod, image) for plugin in self._plugins)):
            own += answers
        return found + registry_auth.matching(image, own)

    async def _of_secrets(self, pod: core_v1.Pod, image: str, secrets: Sequence[core_v1.Secret]) -> list[Credential]:
        # Large secrets take long to read. Those of one namespace wait for each other, not for those of others.
        namespace = pod.metadata.namespace or ""
        owner = threads.Owner(pod.metadata.uid or "", namespace)
        return await threads.call(f"pull secrets of {namespace}", self._secrets.matching, image, secrets, owner=owner)

    def _docker_config(self) -> list[Credential]:
        try:
            return registry_auth.docker_config(self._file.read_bytes(), Source(NODE))
        except OSError:
            return []
