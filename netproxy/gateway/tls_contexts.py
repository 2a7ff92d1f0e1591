"""TLS settings of listeners, cached by the Secrets that they come from, with a bound for each namespace.

A Secret is checked once however many listeners name it, and settings are shared by all listeners of a namespace with the same
certificates. Of the certificates of a listener only the first with each kind of key is served, so lists that differ
in the others are one. A namespace has settings for a limited number of different lists: what is beyond serves the
first certificate alone. Certificates are checked in a thread, one at a time, first come first served, and each
namespace is charged with the time.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from kube.api import core_v1
from kube.gateway import names
from kube.rate import Rate
from netproxy.gateway.certificates import CertificateError, Parsed, context_with, parse

log = logging.getLogger(__name__)
MOST_LISTS = 64
"""Different lists of several certificates in one namespace of Gateways."""
SECONDS, SHARE, LONGEST = 4.0, 0.25, 60.0
"""CPU time for the certificates of a namespace at once, then part of all time, and the longest delay in seconds."""
Key = tuple[str, tuple[str, ...]]
"""A namespace of Gateways, and the names of the Secrets whose certificates are served."""
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class _Checked:
    """A Secret with the result of its check."""

    version: str
    parsed: Parsed | None
    outdated: bool = False
    """True if there is another version of the Secret, which is not checked yet."""


_MISSING = _Checked("", None)


@dataclass(frozen=True, slots=True)
class _Settings:
    """TLS settings with the versions of their Secrets; None if OpenSSL refuses them."""

    versions: tuple[str, ...]
    context: ssl.SSLContext | None
    outdated: bool = False


class TlsContexts:
    """TLS settings; `find` returns a Secret in the gateways' namespace by name, `now` the time in seconds."""

    def __init__(self, find: Callable[[str], core_v1.Secret | None], now: Callable[[], float] = time.monotonic) -> None:
        self._find, self._now = find, now
        self._checked: dict[str, _Checked] = {}
        self._settings: dict[Key, _Settings] = {}
        self._lists = Counter[str]()
        """Numbers of lists of several certificates by namespaces."""
        self._users: dict[str, tuple[frozenset[Key], frozenset[str]]] = {}
        """Settings, and names of Secrets, of each Gateway."""
        self._uses = Counter[Key | str]()
        self._thread = asyncio.Lock()
        self._rate = Rate(SECONDS, SHARE, LONGEST)

    def __len__(self) -> int:
        return len(self._settings)

    def delay(self, namespace: str) -> float:
        """Return the seconds until a namespace may have further certificates checked."""
        return self._rate.delay(namespace, self._now())

    async def of(self, gateway: str, wanted: Iterable[Key]) -> tuple[Mapping[Key, ssl.SSLContext], bool]:
        """Return the settings of a Gateway's listeners, by their namespaces and Secrets, and whether all are up to date.

        Those that cannot be served are left out, and what of a namespace has to wait is as it was. What the Gateway does not
        use any more is dropped, unless another one does.
        """
        wanted = set(wanted)
        found: dict[Key, ssl.SSLContext] = {}
        used: set[Key] = set()
        current = True
        for namespace, listed in sorted(wanted):
            checked = {name: await self._check(namespace, name) for name in listed}
            current = current and not any(each is None or each.outdated for each in checked.values())
            key = self._key(namespace, {name: each for name, each in checked.items() if each is not None})
            if not key[1]:
                continue
            used.add(key)
            settings = await self._of(key, [each for name in key[1] if (each := checked[name]) is not None])
            current = current and settings is not None and not settings.outdated
            if settings is not None and settings.context is not None:
                found[namespace, listed] = settings.context
        self._use(gateway, frozenset(used), frozenset(name for _, listed in wanted for name in listed))
        return found, current

    def release(self, gateway: str) -> None:
        """Drop what only this Gateway uses."""
        self._use(gateway, frozenset(), frozenset())

    async def _check(self, namespace: str, name: str) -> _Checked | None:
        """Check a Secret, unless it has not changed; None if it is missing or the namespace has to wait."""
        secret, known = self._find(name), self._checked.get(name)
        if secret is None:
            return _MISSING
        version = secret.metadata.resource_version or ""
        if known is not None and known.version == version:
            return known
        if self.delay(namespace) > 0:
            return None if known is None else replace(known, outdated=True)
        try:
            parsed = await self._in_thread(namespace, lambda: parse(secret.data))
        except CertificateError as error:
            log.warning("%s/%s: %s", names.NAMESPACE, name, error)
            parsed = None
        found = self._checked[name] = _Checked(version, parsed)
        return found

    def _key(self, namespace: str, checked: Mapping[str, _Checked]) -> Key:
        """Return the Secrets of which certificates are served: the first of each kind of key."""
        kinds: dict[str, str] = {}
        for name, each in checked.items():
            if each.parsed is not None:
                kinds.setdefault(each.parsed.kind, name)
        key = namespace, tuple(kinds.values())
        if len(kinds) > 1 and key not in self._settings and self._lists[namespace] >= MOST_LISTS:
            log.warning("namespace %s has more than %d lists of certificates", namespace, MOST_LISTS)
            return namespace, key[1][:1]
        return key

    async def _of(self, key: Key, checked: Sequence[_Checked]) -> _Settings | None:
        """Return settings with certificates; None if there are none yet and the namespace has to wait."""
        namespace, listed = key
        versions = tuple(each.version for each in checked)
        before = self._settings.get(key)
        if before is not None and before.versions == versions:
            return before
        if self.delay(namespace) > 0:
            return None if before is None else replace(before, outdated=True)
        try:
            parsed = [each.parsed for each in checked if each.parsed is not None]
            made = _Settings(versions, await self._in_thread(namespace, lambda: context_with(parsed)))
        except CertificateError as error:
            log.warning("%s/%s: %s", names.NAMESPACE, ", ".join(listed), error)
            made = _Settings(versions, None)
        if key not in self._settings and len(listed) > 1:
            self._lists[namespace] += 1
        self._settings[key] = made
        return made

    async def _in_thread(self, namespace: str, work: Callable[[], R]) -> R:
        """Return what `work` returns, and charge its time."""

        def timed() -> tuple[R | CertificateError, float]:
            began = time.thread_time()
            try:
                result: R | CertificateError = work()
            except CertificateError as error:
                result = error
            return result, time.thread_time() - began

        async with self._thread:
            result, seconds = await asyncio.to_thread(timed)
        self._rate.charge(namespace, seconds, self._now())
        if isinstance(result, CertificateError):
            raise result
        return result

    def _use(self, gateway: str, keys: frozenset[Key], secrets: frozenset[str]) -> None:
        """Record what a Gateway uses, and drop what none uses any more."""
        old_keys, old_secrets = self._users.pop(gateway, (frozenset(), frozenset()))
        if keys or secrets:
            self._users[gateway] = keys, secrets
        self._uses.update(keys | secrets)
        self._uses.subtract(old_keys | old_secrets)
        for key in old_keys - keys:
            if self._uses[key] <= 0:
                del self._uses[key]
                if self._settings.pop(key, None) is not None and len(key[1]) > 1:
                    self._lists[key[0]] -= 1
                    if not self._lists[key[0]]:
                        del self._lists[key[0]]
        for name in old_secrets - secrets:
            if self._uses[name] <= 0:
                del self._uses[name]
                self._checked.pop(name, None)
