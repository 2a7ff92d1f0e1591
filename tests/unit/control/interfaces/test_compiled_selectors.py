"""Selectors of stored objects: compiled once for each generation, large ones beside the loop, and kept up to a limit."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from control.admission.matching import selected
from control.auth.user import UserInfo
from control.event_loop.offload import LARGE
from control.interfaces import compiled_selectors
from control.interfaces.admission import Attributes
from control.interfaces.compiled_selectors import CompiledSelectors
from kube import resources
from kube.api import core_v1

POD = {"metadata": {"name": "p", "labels": {"app": "web"}}}
LABELS = {"matchLabels": {"app": "web"}}


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The threads in which selectors were compiled."""
    found, original = list[str](), compiled_selectors.from_label_selector

    def compile(selector: Any) -> Any:
        found.append(threading.current_thread().name.partition("_")[0])
        return original(selector)

    monkeypatch.setattr(compiled_selectors, "from_label_selector", compile)
    return found


def meta(uid: str = "1", generation: int = 1) -> dict[str, Any]:
    return {"name": "a", "uid": uid, "generation": generation}


async def test_a_selector_is_compiled_once_for_each_generation_of_its_object(compiled: list[str]) -> None:
    kept = CompiledSelectors()
    for _ in range(3):
        assert (await kept.of("ann", meta(), "a", lambda: LABELS)).matches({"app": "web"})
    assert len(compiled) == 1
    assert not (await kept.of("ann", meta(generation=2), "a", lambda: None)).matches({"app": "web"})
    await kept.of("ann", meta(), "b", lambda: LABELS)
    await kept.of("ann", meta("2"), "a", lambda: LABELS)
    assert len(compiled) == 4 and len(kept._kept) == 3


async def test_a_selector_of_an_object_without_a_uid_is_not_cached(compiled: list[str]) -> None:
    kept = CompiledSelectors()
    for selector in (LABELS, None):
        assert (await kept.of("ann", {"name": "a"}, "a", lambda s=selector: s)).matches({"app": "web"}) is bool(
            selector
        )  # type: ignore[misc]
    assert len(compiled) == 2 and not kept._kept


async def test_a_large_selector_is_compiled_by_the_thread_once_for_all_who_wait(compiled: list[str]) -> None:
    kept = CompiledSelectors()
    large = {"matchLabels": {f"key-{number}": "value" for number in range(LARGE // 10)}}
    requested = [kept.of(user, meta(), "a", lambda: large) for user in "abc"]
    found = await asyncio.gather(*requested)
    assert compiled == ["large-objects"] and found[0] is found[1] is found[2]
    assert found[0].matches(large["matchLabels"])


async def test_selectors_are_kept_up_to_a_number_and_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = CompiledSelectors()
    monkeypatch.setattr(compiled_selectors, "MOST", 10)
    for number in range(30):
        await kept.of("ann", meta(str(number)), "a", lambda: LABELS)
    assert [uid for uid, _ in kept._kept] == [str(number) for number in range(20, 30)]
    monkeypatch.setattr(compiled_selectors, "MOST_BYTES", 3 * len('{"matchLabels":{"app":"web"}}'))
    for generation in range(5):  # another generation takes the place of the one before
        await kept.of("ann", meta("x", generation), "a", lambda: LABELS)
    assert [uid for uid, _ in kept._kept] == ["28", "29", "x"]
    assert kept._bytes == sum(size for _, _, size in kept._kept.values())
    kept.forget()
    assert not kept._kept and not kept._bytes


class Namespaces:
    """A lookup that knows one namespace."""

    def get(self, target: str, namespace: str, name: str) -> dict[str, Any]:
        return {"metadata": {"name": name, "labels": {"team": "a"}}}


@pytest.mark.parametrize(
    ("match", "chosen"),
    [
        ({}, True),
        ({"namespaceSelector": {}, "objectSelector": {}}, True),
        ({"namespaceSelector": {"matchLabels": {"team": "a"}}}, True),
        ({"namespaceSelector": {"matchLabels": {"team": "b"}}}, False),
        ({"objectSelector": LABELS}, True),
        ({"objectSelector": {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}}, False),
        ({"namespaceSelector": {"matchLabels": {"team": "a"}}, "objectSelector": {"matchLabels": {"app": "b"}}}, False),
    ],
)
async def test_admission_compiles_the_selectors_of_an_object_once(
    compiled: list[str], match: dict[str, Any], chosen: bool
) -> None:
    compiled_selectors.kept.forget()
    request = Attributes(
        resource=resources.of(core_v1.Pod),
        operation="CREATE",
        user=UserInfo("u"),
        namespace="default",
        name="p",
        obj=POD,
    )
    owner, lookup = {"metadata": meta()}, Namespaces()
    for _ in range(3):
        assert await selected(lookup, match, request, owner, "webhooks[0]") is chosen  # type: ignore[arg-type]
    assert len(compiled) == sum(map(bool, match.values()))
