"""Cached results of a credential plugin."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent.images.credentials.configuration import Provider
from agent.images.credentials.plugin import Plugin, PluginError, _Answer, _Auth
from kube.api import core_v1
from tests.support.clock import FakeClock


async def test_no_lock_is_kept_of_an_image_for_which_a_plugin_failed(tmp_path: Path, monkeypatch: Any) -> None:
    provider = Provider(
        name="vault",
        match_images=("a.io",),
        default_cache_duration="1m",
        api_version="credentialprovider.kubelet.k8s.io/v1",
    )
    nothing: Any = None
    plugin = Plugin(provider, tmp_path, nothing, nothing, FakeClock())
    requested = []

    async def fail(image: str, account: object) -> None:
        requested.append(image)
        raise PluginError("no")

    monkeypatch.setattr(plugin, "_exec", fail)

    def locks() -> int:
        gc.collect()
        return sum(isinstance(found, asyncio.Lock) for found in gc.get_objects())

    before = locks()
    for number in range(20):
        assert await plugin.credentials(core_v1.Pod(), f"a.io/x:{number}") == []
    assert len(requested) == 20 and locks() == before


async def test_an_answer_for_an_image_is_none_for_a_registry_of_the_same_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`registry.test:5000` is also a repository of Docker Hub with a tag, which a pod of any namespace may name."""
    provider = Provider(
        name="vault",
        match_images=("registry.test:5000", "docker.io"),
        default_cache_duration="1h",
        api_version="credentialprovider.kubelet.k8s.io/v1",
    )
    nothing: Any = None
    plugin = Plugin(provider, tmp_path, nothing, nothing, FakeClock())

    async def answer(image: str, account: object) -> _Answer:
        known = {"registry.test:5000": _Auth(username="u", password="p")} if "/" in image else {}
        return _Answer("", "", cache_key_type="Image", auth=known)

    monkeypatch.setattr(plugin, "_exec", answer)
    assert await plugin.credentials(core_v1.Pod(), "registry.test:5000") == []
    [found] = await plugin.credentials(core_v1.Pod(), "registry.test:5000/team/app:1")
    assert found.address == "registry.test:5000"


@pytest.mark.parametrize("output", [b"", b"[]", b"[" * 100_000, b'{"apiVersion":"\xff"}'])
async def test_an_answer_that_is_not_json_is_the_plugins_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: bytes
) -> None:
    provider = Provider(
        name="vault",
        match_images=("a.io",),
        default_cache_duration="1m",
        api_version="credentialprovider.kubelet.k8s.io/v1",
    )
    nothing: Any = None

    async def answer(*_: object, **__: object) -> Any:
        return SimpleNamespace(stdout=output, returncode=0)

    monkeypatch.setattr("agent.images.credentials.plugin.process.run", answer)
    with pytest.raises(PluginError, match="error decoding the answer"):
        await Plugin(provider, tmp_path, nothing, nothing, FakeClock())._exec("a.io/x", None)
