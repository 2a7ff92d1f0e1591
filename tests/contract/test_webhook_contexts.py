"""TLS settings of webhooks: made in threads, once for each bundle."""

from __future__ import annotations

import asyncio
import base64
import ssl
import threading
from datetime import UTC, datetime

import pytest

from control.admission.webhooks import contexts
from control.admission.webhooks.contexts import Contexts
from control.admission.webhooks.credentials import NOBODY
from kube import ca_bundles, pki


def bundle(name: str) -> str:
    return base64.b64encode(pki.new_ca(name, datetime.now(UTC)).cert_pem).decode()


class Counted:
    """Counts the settings that are made; `go_on` lets them be made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go_on = threading.Event()
        self.go_on.set()
        self.bundles: list[str] = []
        self.threads: set[threading.Thread] = set()
        real = ca_bundles.verifying

        def verifying(bundle: str) -> ssl.SSLContext:
            self.bundles.append(bundle)
            self.threads.add(threading.current_thread())
            self.go_on.wait(20)
            return real(bundle)

        monkeypatch.setattr(ca_bundles, "verifying", verifying)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


async def test_settings_are_made_once_in_a_thread(counted: Counted) -> None:
    made, given = Contexts(), bundle("a")
    counted.go_on.clear()
    waiting = [asyncio.create_task(made.get(given, NOBODY, "ns")) for _ in range(5)]
    await asyncio.sleep(0.05)
    counted.go_on.set()
    found = await asyncio.gather(*waiting)
    assert set(found) == {await made.get(given, NOBODY, "ns")}
    assert counted.bundles == [given]
    assert threading.main_thread() not in counted.threads


async def test_a_call_that_does_not_wait_leaves_the_settings_to_the_next(counted: Counted) -> None:
    made, given = Contexts(), bundle("a")
    counted.go_on.clear()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await made.get(given, NOBODY, "ns")
    counted.go_on.set()
    await made.get(given, NOBODY, "ns")
    assert counted.bundles == [given]


async def test_an_unusable_bundle_is_read_once(counted: Counted) -> None:
    made = Contexts()
    for _ in range(3):
        with pytest.raises(ValueError, match="unable to load root certificates"):
            await made.get("AAAA", NOBODY, "ns")
    assert counted.bundles == ["AAAA"]


async def test_an_error_that_may_pass_is_not_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(bundle: str) -> ssl.SSLContext:
        raise OSError(24, "Too many open files")

    made, given = Contexts(), bundle("a")
    with monkeypatch.context() as patched, pytest.raises(OSError, match="Too many open files"):
        patched.setattr(ca_bundles, "verifying", fail)
        await made.get(given, NOBODY, "ns")
    assert isinstance(await made.get(given, NOBODY, "ns"), ssl.SSLContext)


async def test_the_length_of_the_cached_bundles_is_limited(counted: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = bundle("a"), bundle("b"), bundle("c")
    monkeypatch.setattr(contexts, "LENGTH", len(first) + len(second) + 10)
    made = Contexts()
    for given in (first, second, first, third, first, second):
        await made.get(given, NOBODY, "ns")
    assert counted.bundles == [first, second, third, second], (
        "the one that was not used for the longest time goes first"
    )
    monkeypatch.setattr(contexts, "LENGTH", 10)
    await made.get(third, NOBODY, "ns")
    assert len(made._made) == 1 and made._length == len(third)


async def test_the_number_of_cached_settings_is_limited(counted: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contexts, "ENTRIES", 2)
    made = Contexts()
    for name in "abc":
        await made.get(bundle(name), NOBODY, "ns")
    assert len(made._made) == 2
