"""Links to the logs of containers in /var/log/containers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent.pods.dependencies import PodDependencies
from agent.pods.setup import link_log, unlink_logs
from cri.messages import ContainerConfig, ContainerMetadata
from kube.api import core_v1, meta_v1

ID = "0123456789abcdef" * 4


def linked(folder: Path, name: str) -> list[str]:
    config: Any = SimpleNamespace(container_logs_dir=folder / "containers", pod_logs_dir=folder / "pods")
    pod = core_v1.Pod(metadata=meta_v1.ObjectMeta(name=name, namespace="shop", uid="u"))
    made = ContainerConfig(metadata=ContainerMetadata(name="c"), log_path="c/0.log")
    link_log(cast(PodDependencies, SimpleNamespace(config=config)), pod, made, ID)
    return [path.name for path in (folder / "containers").iterdir()]


@pytest.mark.parametrize("length", [1, 63, 179, 180, 181, 253])
def test_a_link_has_the_containers_id_however_long_the_pods_name_is(tmp_path: Path, length: int) -> None:
    [name] = linked(tmp_path, "p" * length)
    assert name.endswith(f"-{ID}.log") and name.startswith("p") and len(name) <= 255
    assert length > 179 or name == f"{'p' * length}_shop_c-{ID}.log"
    unlink_logs(tmp_path / "containers", {ID})
    assert list((tmp_path / "containers").iterdir()) == []


def test_a_link_that_cannot_be_made_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "containers").mkdir()
    assert linked(tmp_path, "web") == linked(tmp_path, "web"), "it may be there from before"
    assert caplog.text == ""
    (tmp_path / "other").write_text("no folder")
    config: Any = SimpleNamespace(container_logs_dir=tmp_path / "other", pod_logs_dir=tmp_path)
    made = ContainerConfig(metadata=ContainerMetadata(name="c"), log_path="c/0.log")
    link_log(cast(PodDependencies, SimpleNamespace(config=config)), core_v1.Pod(), made, ID)
    assert "log collectors do not find the log of container" in caplog.text
