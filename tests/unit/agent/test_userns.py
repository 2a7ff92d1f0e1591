"""Which IDs pods with user namespaces are given."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from agent import config
from agent.config import Flags
from agent.kubelet_configuration import ConfigError, parse
from agent.podspec.userns import LENGTH, UserNamespaceError, UserNamespaces
from kube.api import core_v1
from tests.unit.agent.pods import pod

ABLE = {"": True}
HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"


def one(uid: str) -> core_v1.Pod:
    return pod(hostUsers=False, metadata={"uid": uid})


def first(users: UserNamespaces, uid: str) -> int:
    users.ensure(one(uid), "", ABLE)
    (mapping,) = users.ids(one(uid))
    return int(mapping.host_id)


def test_a_pod_keeps_its_range_and_the_nodes_own_is_never_given(tmp_path: Path) -> None:
    users = UserNamespaces(tmp_path, 10)
    assert [first(users, uid) for uid in ("a", "b", "a")] == [LENGTH, 2 * LENGTH, LENGTH]
    again = UserNamespaces(tmp_path, 10)
    again.load()
    assert [first(again, uid) for uid in ("c", "b")] == [3 * LENGTH, 2 * LENGTH]


def test_a_range_is_free_when_the_pods_folder_is_gone(tmp_path: Path) -> None:
    users = UserNamespaces(tmp_path, 2)
    first(users, "a")
    first(users, "b")
    with pytest.raises(UserNamespaceError, match=r"limit on count of pods .* \(limit is 2, current"):
        first(users, "c")
    shutil.rmtree(tmp_path / "a")
    assert first(users, "c") == LENGTH


def test_other_pods_have_none(tmp_path: Path) -> None:
    users = UserNamespaces(tmp_path, 2)
    users.ensure(pod(), "", {})
    assert users.ids(pod()) == [] and list(tmp_path.iterdir()) == []


def test_the_number_of_ids_is_a_multiple_of_65536() -> None:
    def built(count: int) -> int:
        file, _ = parse(HEAD + f"userNamespaces: {{idsPerPod: {count}}}\n")
        return config.build(file, Flags()).ids_per_pod

    assert built(131072) == 131072
    for count in (0, 1000, 65537, 1 << 32):
        with pytest.raises(ConfigError, match="idsPerPod"):
            built(count)
