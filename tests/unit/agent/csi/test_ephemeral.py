"""An ephemeral volume of a pod that runs does not depend on its CSIDriver object any more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent.volumes.payload import VolumeError
from kube.api import storage_v1
from tests.unit.agent.csi import test_attach_required
from tests.unit.agent.csi.test_attach_required import Node


async def test_pods_that_run_keep_their_volumes_without_the_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(test_attach_required, "VOLUME", replace(test_attach_required.VOLUME, ephemeral=True))
    node = Node(tmp_path)
    node.say(volumeLifecycleModes=["Ephemeral"], requiresRepublish=True)
    await node.set_up("web")
    await node.api.client().delete(storage_v1.CSIDriver, "d")
    await node.set_up("web")
    with pytest.raises(VolumeError, match="no CSIDriver object"):
        await node.set_up("other")
    assert len(node.driver.published) == 1
    node.say(volumeLifecycleModes=["Ephemeral"], requiresRepublish=True)
    await node.set_up("web")
    assert len(node.driver.published) == 2
