"""Environment variables that containers read from files of a volume at their start (fileKeyRef)."""

from __future__ import annotations

from typing import Any

from cri.fake import FakeRuntime
from tests.support.fake_node import calls, container, create, waiting
from tests.support.node import NodeUnderTest


def of_file(key: str, **more: Any) -> dict[str, Any]:
    return {"name": key, "valueFrom": {"fileKeyRef": {"volumeName": "config", "path": "env", "key": key, **more}}}


async def test_a_container_waits_for_the_file_that_it_names_and_starts_with_its_variables(
    node: NodeUnderTest, runtime: FakeRuntime
) -> None:
    env = [of_file("A"), of_file("NONE", optional=True), {"name": "B", "value": "$(A)!"}]
    pod = await create(node, "reads", container(env=env), volumes=[{"name": "config", "emptyDir": {}}])
    found = await node.wait("reads", lambda p: waiting(p) == "CreateContainerConfigError")
    state = found.status.container_statuses[0].state
    assert state and state.waiting and state.waiting.message == "couldn't parse env file"
    assert not calls(runtime, "CreateContainer")
    folder = node.config.root_dir / "pods" / (pod.metadata.uid or "") / "volumes/kubernetes.io~empty-dir/config"
    (folder / "env").write_text("# written by another container\nA='from the file'\n")
    await node.ready("reads")
    (request,) = calls(runtime, "CreateContainer")
    given = {variable.key: variable.value for variable in request.config.envs}
    assert (given["A"], given["B"], "NONE" in given) == ("from the file", "from the file!", False)
