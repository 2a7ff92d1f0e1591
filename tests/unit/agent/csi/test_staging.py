"""A volume is staged once for all its pods on the node, and again after unstaging was tried."""

from __future__ import annotations

from pathlib import Path

import pytest

from cri.errors import CRIError
from tests.unit.agent.csi.test_attach_required import Node


@pytest.fixture
def node(tmp_path: Path) -> Node:
    made = Node(tmp_path)
    made.say(attachRequired=False)
    return made


async def test_later_pods_of_a_volume_do_not_stage_it_again(node: Node) -> None:
    for name in ("first", "second", "second"):
        await node.set_up(name)
    assert len(node.driver.staged) == 1 and len(node.driver.published) == 2
    await node.volumes.release("first")
    await node.set_up("third")
    assert len(node.driver.staged) == 1, "the second has it still"
    await node.volumes.release("second")
    await node.volumes.release("third")
    await node.set_up("fourth")
    assert len(node.driver.staged) == 2


@pytest.mark.parametrize("republishes", [True, False])
async def test_the_next_publication_is_required_if_the_driver_says_so(node: Node, *, republishes: bool) -> None:
    node.say(attachRequired=False, requiresRepublish=republishes)
    ready = await node.set_up("first")
    assert ready.required is republishes and (ready.again is not None) is republishes


async def test_a_volume_whose_publishing_failed_is_not_staged_again(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def publish(*arguments: object, **more: object) -> None:
        raise CRIError("no", code="INTERNAL")

    monkeypatch.setattr(node.driver, "publish", publish, raising=True)
    with pytest.raises(Exception, match="no"):
        await node.set_up("first")
    monkeypatch.undo()
    await node.set_up("first")
    assert len(node.driver.staged) == 1


async def test_a_volume_is_staged_again_after_unstaging_was_tried_and_by_a_new_agent(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unstage(*arguments: object, **more: object) -> None:
        raise CRIError("late", code="DEADLINE_EXCEEDED")

    await node.set_up("first")
    monkeypatch.setattr(node.driver, "unstage", unstage)
    await node.volumes.release("first")
    await node.set_up("second")
    assert len(node.driver.staged) == 2, "it may be unstaged by now"
    await node.volumes.close()
    node.restart()
    await node.set_up("second")
    assert len(node.driver.staged) == 3
