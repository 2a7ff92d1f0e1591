"""TLS settings of listeners: their number, and how often certificates are read, for lists that users choose."""

from __future__ import annotations

import itertools
import ssl
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import pytest

from kube.api import core_v1, meta_v1
from netproxy.gateway import tls_contexts
from netproxy.gateway.certificates import CertificateError, Parsed
from netproxy.gateway.tls_contexts import MOST_LISTS, SECONDS, Key, TlsContexts

KINDS = {"r": "RSA", "e": "EC", "d": "Ed25519"}


class Secrets:
    """Secrets by name, of which the first letter is the kind of key; counts what is read and built of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.versions: dict[str, int] = {}
        self.parsed, self.built = Counter[str](), Counter[tuple[str, ...]]()
        self.seconds = 0.0
        """CPU time that each check takes."""
        self.now = time.monotonic()
        self.contexts = TlsContexts(self._find, lambda: self.now)
        monkeypatch.setattr(tls_contexts, "parse", self._parse)
        monkeypatch.setattr(tls_contexts, "context_with", self._build)

    def put(self, *names: str) -> None:
        for name in names:
            self.versions[name] = self.versions.get(name, 0) + 1

    def _find(self, name: str) -> core_v1.Secret | None:
        if name not in self.versions:
            return None
        metadata = meta_v1.ObjectMeta(name=name, resource_version=str(self.versions[name]))
        return core_v1.Secret(metadata=metadata, data={"name": name})

    def _parse(self, data: Mapping[str, str]) -> Parsed:
        self.parsed[data["name"]] += 1
        end = time.thread_time() + self.seconds
        while time.thread_time() < end:
            pass
        if data["name"].endswith("broken"):
            raise CertificateError("broken")
        return Parsed(KINDS[data["name"][0]], data["name"].encode())

    def _build(self, certificates: Sequence[Parsed]) -> ssl.SSLContext:
        self.built[tuple(each.pem.decode() for each in certificates)] += 1
        return ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    async def of(self, gateway: str, lists: Iterable[Sequence[str]], namespace: str = "infra") -> Mapping[Key, object]:
        found, _ = await self.contexts.of(gateway, {(namespace, tuple(each)) for each in lists})
        return found


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> Secrets:
    return Secrets(monkeypatch)


async def test_lists_with_the_same_first_certificate_of_each_kind_of_key_share_settings(secrets: Secrets) -> None:
    all_names = "ra rb ea eb ec da db dc".split()
    secrets.put(*all_names)
    lists = list(itertools.islice(itertools.permutations(all_names), 0, 40320, 21))
    found = await secrets.of("infra/web", lists)
    assert len(found) == len(lists) == 1920
    assert secrets.parsed == dict.fromkeys(all_names, 1)
    assert len(secrets.contexts) <= 64 + 8 and max(secrets.built.values()) == 1
    assert found["infra", tuple(lists[0])] is found["infra", ("ra", "rb", "ea", "eb", "ec", "da", "db", "dc")]

    secrets.put("ra")
    again = await secrets.of("infra/web", lists)
    assert sum(secrets.parsed.values()) == 9
    assert all(count == 1 or "ra" in key for key, count in secrets.built.items())
    assert again.keys() == found.keys()


async def test_the_lists_of_one_namespace_are_limited_and_what_is_beyond_serves_the_first_certificate(
    secrets: Secrets,
) -> None:
    pairs = [(f"r{number:03}", f"e{number:03}") for number in range(MOST_LISTS + 10)]
    secrets.put(*itertools.chain(*pairs))
    found = await secrets.of("infra/web", pairs)
    assert len(found) == len(pairs)
    assert Counter(map(len, secrets.built)) == {2: MOST_LISTS, 1: 10}
    await secrets.of("apps/web", [("r000", "e000")], "apps")
    assert secrets.built["r000", "e000"] == 2
    secrets.contexts.release("infra/web")
    assert len(secrets.contexts) == 1
    await secrets.of("infra/web", [pairs[-1]])
    assert secrets.built[pairs[-1]] == 1
    secrets.contexts.release("infra/web")
    secrets.contexts.release("apps/web")
    assert not len(secrets.contexts) and not secrets.contexts._checked and not secrets.contexts._uses


async def test_certificates_that_are_missing_or_broken_are_left_out(secrets: Secrets) -> None:
    secrets.put("ra", "e-broken")
    found = await secrets.of("infra/web", [("absent", "e-broken", "ra"), ("absent",), ("e-broken",)])
    assert list(found) == [("infra", ("absent", "e-broken", "ra"))] and secrets.built == {("ra",): 1}
    secrets.put("e-broken")
    await secrets.of("infra/web", [("e-broken", "ra")])
    assert secrets.parsed == {"ra": 1, "e-broken": 2}


async def test_a_namespace_that_has_used_up_its_time_keeps_its_settings_and_affects_no_other(secrets: Secrets) -> None:
    secrets.put("ra", "rb")
    before = await secrets.of("infra/web", [("ra",)])
    secrets.contexts._rate.charge("infra", 2 * SECONDS, time.monotonic())
    secrets.put("ra")
    found, current = await secrets.contexts.of("infra/web", {("infra", ("ra",)), ("infra", ("rb",))})
    assert found == before and not current and secrets.parsed == {"ra": 1}
    found, current = await secrets.contexts.of("apps/web", {("apps", ("rb",))})
    assert list(found) == [("apps", ("rb",))] and current


async def test_a_namespace_is_charged_with_the_time_of_its_certificates(secrets: Secrets) -> None:
    secrets.put("ra")
    secrets.seconds = 0.02
    secrets.contexts._rate.charge("infra", SECONDS - 0.001, secrets.now)
    assert not secrets.contexts.delay("infra")
    await secrets.of("infra/web", [("ra",)])
    assert secrets.contexts.delay("infra") > 0
