"""One credential plugin: a program that reads an image's name from standard input and answers with credentials.

Answers are cached for the duration and the scope (image, registry, all images) that they name, and for each service account
apart where the plugin was given a token of one. Concurrent requests for the same credentials run the program once.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from agent.images import names, registry_auth
from agent.images.credentials.configuration import Provider
from agent.images.registry_auth import ACCOUNT, NODE, Credential, Source
from kube import duration, process
from kube.api import core_v1
from kube.client import Client
from kube.clock import Clock
from kube.errors import StatusError
from kube.json_object import UNREADABLE
from kube.locks import Locks

log = logging.getLogger(__name__)
Tokens = Callable[[core_v1.Pod, str], Awaitable[str]]
"""Returns a token of the pod's service account for an audience. Raises PluginError."""

EXEC_SECONDS = 60.0
MOST_STDERR = 2000
"""Characters of a failed program's standard error that are logged: the last ones."""


class _Auth(msgspec.Struct):
    username: str = ""
    password: str = ""


class _Answer(msgspec.Struct, rename="camel"):
    kind: str
    api_version: str
    cache_key_type: str = ""
    cache_duration: str | None = None
    auth: dict[str, _Auth] | None = None


@dataclass(frozen=True, slots=True)
class _Account:
    """A pod's service account, as passed to a plugin."""

    source: Source
    token: str
    annotations: tuple[tuple[str, str], ...]


class PluginError(Exception):
    """The program failed, or its answer is malformed."""


class Plugin:
    """A configured program below `folder`; `client` gives service accounts, `token` a pod's token for an audience."""

    def __init__(self, provider: Provider, folder: Path, client: Client, token: Tokens, clock: Clock) -> None:
        self.provider, self._path = provider, folder / provider.name
        self._client, self._token, self._clock = client, token, clock
        self._kept: dict[tuple[tuple[str, str], str], tuple[float, list[Credential]]] = {}
        """By scope (kind and the image or registry), and the account: until when, and what."""
        self._running = Locks()

    async def credentials(self, pod: core_v1.Pod, image: str) -> list[Credential]:
        """Return credentials for an image; none where the plugin is not for it, or has failed, which is logged."""
        if not any(registry_auth.matches(pattern, image) for pattern in self.provider.match_images):
            return []
        try:
            account = await self._account(pod)
            if account is None and self.provider.token_attributes is not None:
                if pod.spec.service_account_name or self.provider.token_attributes.require_service_account:
                    return []
            return await self._ask_once(image, account)
        except (PluginError, StatusError) as error:
            log.error("credential provider %s: %s", self.provider.name, error)
            return []

    async def _account(self, pod: core_v1.Pod) -> _Account | None:
        """Return the pod's account with a token; None if it has none or lacks an annotation. Raise StatusError."""
        wanted, name = self.provider.token_attributes, pod.spec.service_account_name
        if wanted is None or not name:
            return None
        namespace = pod.metadata.namespace or ""
        found = await self._client.get(core_v1.ServiceAccount, name, namespace)
        annotations = found.metadata.annotations
        if any(key not in annotations for key in wanted.required_service_account_annotation_keys):
            return None
        keys = (*wanted.required_service_account_annotation_keys, *wanted.optional_service_account_annotation_keys)
        chosen = tuple((key, annotations[key]) for key in sorted(keys) if key in annotations)
        token = await self._token(pod, wanted.service_account_token_audience)
        return _Account(Source(ACCOUNT, found.metadata.uid or "", namespace, name), token, chosen)

    async def _ask_once(self, image: str, account: _Account | None) -> list[Credential]:
        whose = self._whose(account)
        async with self._running.of((image, whose)):
            known = self._known(image, whose)
            return known if known is not None else await self._run(image, account, whose)

    def _whose(self, account: _Account | None) -> str:
        """Return what keeps one account's answers from another's."""
        if account is None:
            return ""
        wanted = self.provider.token_attributes
        token = account.token if wanted is not None and wanted.cache_type == "Token" else ""
        text = msgspec.json.encode((account.source, account.annotations, token))
        return hashlib.sha256(text).hexdigest()

    def _known(self, image: str, whose: str) -> list[Credential] | None:
        now = self._clock.monotonic()
        for key in [key for key, (until, _) in self._kept.items() if until <= now]:
            del self._kept[key]
        for scope in self._scopes(image).values():
            if (scope, whose) in self._kept:
                return self._kept[scope, whose][1]
        return None

    def _scopes(self, image: str) -> dict[str, tuple[str, str]]:
        """Return what an answer may be cached for, by cacheKeyType: an image may have the text of a registry."""
        return {
            "Image": ("Image", image),
            "Registry": ("Registry", names.split(image)[0]),
            "Global": ("Global", ""),
        }

    async def _run(self, image: str, account: _Account | None, whose: str) -> list[Credential]:
        answer = await self._exec(image, account)
        source = account.source if account is not None else Source(NODE)
        found = [
            Credential(registry_auth.normal(address), auth.username, auth.password, source=source)
            for address, auth in (answer.auth or {}).items()
        ]
        scope = self._scopes(image).get(answer.cache_key_type)
        if scope is None:
            raise PluginError(f"did not return a valid cacheKeyType: {answer.cache_key_type!r}")
        seconds = self.provider.default_cache_seconds
        if answer.cache_duration is not None:
            with contextlib.suppress(ValueError):
                seconds = duration.parse(answer.cache_duration)
        if seconds > 0:
            self._kept[scope, whose] = (self._clock.monotonic() + seconds, found)
        return found

    async def _exec(self, image: str, account: _Account | None) -> _Answer:
        """Run the program. Raise PluginError.

        What it prints on standard output may contain a password, and its arguments may: neither is in an error. Upstream
        logs standard error, too.
        """
        version = self.provider.api_version
        request: dict[str, object] = {"kind": "CredentialProviderRequest", "apiVersion": version, "image": image}
        if account is not None:
            request["serviceAccountToken"] = account.token
            request["serviceAccountAnnotations"] = dict(account.annotations)
        env: Mapping[str, str] = {one.name: one.value for one in self.provider.env}
        argv = [str(self._path), *self.provider.args]
        asked = msgspec.json.encode(request)
        try:
            result = await process.run(argv, input=asked, timeout=EXEC_SECONDS, env=env, check=False)
        except process.CommandError as error:
            raise PluginError(error.why) from error
        if result.returncode != 0:
            stderr = result.stderr.strip()[-MOST_STDERR:]
            raise PluginError(f"exit status {result.returncode}{f': {stderr}' if stderr else ''}")
        try:
            answer = msgspec.json.decode(result.stdout, type=_Answer)
        except UNREADABLE as error:
            raise PluginError(f"error decoding the answer: {error}") from error
        if answer.kind != "CredentialProviderResponse" or answer.api_version != version:
            raise PluginError(f"answered with {answer.api_version} {answer.kind}, expected {version}")
        return answer
