"""All credentials that an image may be pulled with, in the order in which they are tried.

The pod's secrets come first, the most specific address before others, then the node's own: its docker configurations
(config.json in the agent's directory, and that of `wherry up`) and the answers of plugins (pkg/credentialprovider:
UnionDockerKeyring).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

from agent import threads
from agent.images import registry_auth
from agent.images.credentials.plugin import Plugin
from agent.images.pull_secrets import PullSecrets
from agent.images.registry_auth import NODE, Credential, Source
from kube.api import core_v1

DOCKER_CONFIG = "config.json"
"""The node's docker configuration in the agent's root directory."""


class Keyring:
    """Credentials for pods' images; `files` are the node's docker configurations."""

    def __init__(
        self,
        files: Sequence[Path],
        plugins: Sequence[Plugin] = (),
        forget: Callable[[str], None] = lambda uid: None,
    ) -> None:
        self._files, self._plugins = files, plugins
        self._secrets = PullSecrets()
        self.forget = forget
        """Drops what is kept for a pod, by its UID."""

    async def find(self, pod: core_v1.Pod, image: str, secrets: Sequence[core_v1.Secret]) -> list[Credential]:
        """Return what to try for an image, best first; none means without credentials. Raise OSError (EAGAIN)."""
        found = await self._of_secrets(pod, image, secrets) if secrets else []
        own = await asyncio.to_thread(self._docker_configs)
        for answers in await asyncio.gather(*(plugin.credentials(pod, image) for plugin in self._plugins)):
            own += answers
        return found + registry_auth.matching(image, own)

    async def _of_secrets(self, pod: core_v1.Pod, image: str, secrets: Sequence[core_v1.Secret]) -> list[Credential]:
        # Large secrets take long to read. Those of one namespace wait for each other, not for those of others.
        namespace = pod.metadata.namespace or ""
        owner = threads.Owner(pod.metadata.uid or "", namespace)
        return await threads.call(f"pull secrets of {namespace}", self._secrets.matching, image, secrets, owner=owner)

    def _docker_configs(self) -> list[Credential]:
        found: list[Credential] = []
        for file in self._files:
            with contextlib.suppress(OSError):
                found += registry_auth.docker_config(file.read_bytes(), Source(NODE))
        return found
