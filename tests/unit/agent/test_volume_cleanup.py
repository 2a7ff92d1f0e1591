from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest

from agent import threads
from agent.volumes.manager import VolumeManager


async def test_volumes_of_a_pod_of_an_earlier_agent_are_removed_for_its_namespace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody = cast(Any, SimpleNamespace(has_volumes_of=lambda uid: False, forget=lambda uid: None))
    manager = VolumeManager(tmp_path / "pods", nobody, nobody, nobody, nobody)
    owners: list[threads.Owner | None] = []

    async def call(key: str, function: Callable[..., Any], *args: Any, owner: threads.Owner | None = None) -> Any:
        owners.append(owner)
        return function(*args)

    monkeypatch.setattr(threads, "call", call)
    folder = manager.pod_dir("uid") / "volumes" / "kubernetes.io~csi"
    folder.mkdir(parents=True)
    nobody.release = AsyncMock()
    owner = threads.Owner("uid", "team")
    await manager.clean("uid", owner)
    assert owners == [owner, owner] and not manager.pod_dir("uid").exists()
    nobody.release.assert_awaited_once_with("uid", owner)
