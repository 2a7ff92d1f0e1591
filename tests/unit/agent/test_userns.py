"""User IDs of pods with user namespaces."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from agent import configure
from agent.flags import Flags
from agent.kubelet_configuration import ConfigError, parse
from agent.podspec.subordinate_ids import IdRange, SubordinateIdsError, usable, verify
from agent.podspec.subordinate_ids import parse as parse_ids
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
    users = UserNamespaces(tmp_path, IdRange())
    assert [first(users, uid) for uid in ("a", "b", "a")] == [LENGTH, 2 * LENGTH, LENGTH]
    again = UserNamespaces(tmp_path, IdRange())
    again.load()
    assert [first(again, uid) for uid in ("c", "b")] == [3 * LENGTH, 2 * LENGTH]


def test_a_range_is_free_when_the_pods_folder_is_gone(tmp_path: Path) -> None:
    users = UserNamespaces(tmp_path, IdRange(5 * LENGTH, 2 * LENGTH))
    assert first(users, "a") == 5 * LENGTH
    first(users, "b")
    with pytest.raises(UserNamespaceError, match=r"could not find an empty slot to allocate a user namespace"):
        first(users, "c")
    shutil.rmtree(tmp_path / "a")
    assert first(users, "c") == 5 * LENGTH


@pytest.mark.parametrize("damage", ["", '{"uidMappings":[]', '{"uidMappings":[],"gidMappings":[]}'])
def test_no_range_is_given_while_another_pods_cannot_be_read(tmp_path: Path, damage: str) -> None:
    first(UserNamespaces(tmp_path, IdRange()), "a")
    file = tmp_path / "a" / "userns"
    whole = file.read_text()
    file.write_text(damage)
    users = UserNamespaces(tmp_path, IdRange())
    users.load()
    for uid in ("a", "b"):
        with pytest.raises(UserNamespaceError, match=r"cannot read .*/a/userns"):
            first(users, uid)
    file.write_text(whole)
    assert [first(users, uid) for uid in ("b", "a")] == [2 * LENGTH, LENGTH]


def test_a_range_that_cannot_be_read_is_forgotten_with_its_pods_folder(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "userns").write_text("")
    users = UserNamespaces(tmp_path, IdRange())
    users.load()
    shutil.rmtree(tmp_path / "a")
    assert first(users, "b") == LENGTH


def test_a_pod_keeps_what_it_has_when_the_nodes_range_or_the_parts_change(tmp_path: Path) -> None:
    users = UserNamespaces(tmp_path, IdRange())
    assert [first(users, uid) for uid in "abc"] == [LENGTH, 2 * LENGTH, 3 * LENGTH]
    larger = UserNamespaces(tmp_path, IdRange(2 * LENGTH, 8 * LENGTH), 2 * LENGTH)
    larger.load()
    assert first(larger, "d") == 4 * LENGTH, "the first part is not free: two pods have half of it each"
    (kept,) = larger.ids(one("b"))
    assert (kept.host_id, kept.length) == (2 * LENGTH, LENGTH)


def test_other_pods_have_none(tmp_path: Path) -> None:
    users = UserNamespaces(tmp_path, IdRange())
    users.ensure(pod(), "", {})
    assert users.ids(pod()) == [] and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("handler", "supported", "message"),
    [
        ("", {"": False}, "runtime does not support user namespaces"),
        ("old", {"old": False}, 'RuntimeClass handler "old" does not support user namespaces'),
        ("", {}, 'runtime does not support user namespaces: the handler "" is not known'),
    ],
)  # fmt: skip
def test_a_runtime_that_cannot_is_named(tmp_path: Path, handler: str, supported: dict[str, bool], message: str) -> None:
    with pytest.raises(UserNamespaceError) as refused:
        UserNamespaces(tmp_path, IdRange()).ensure(one("a"), handler, supported)
    assert str(refused.value) == f"can't set `spec.hostUsers: false`, {message}"


@pytest.mark.parametrize(
    ("printed", "first", "count"),
    [("0: kubelet 65536 7208960\n", 65536, 7208960), ("0: kubelet 131072 131072", 131072, 131072)],
)
def test_the_users_ids_are_read(printed: str, first: int, count: int) -> None:
    assert parse_ids(printed) == IdRange(first, count)


@pytest.mark.parametrize(
    ("printed", "message"),
    [
        ("0: kubelet 65536 65536\n1: kubelet 231072 65536\n", "it must contain only one line"),
        ("", 'invalid line ""'),
        ("0: kubelet 65536", "invalid line"),
        ("0: kubelet x 65536", "error parsing line"),
        ("0: kubelet 65536 4294967296", "error parsing line"),
    ],
)
def test_what_cannot_be_read_is_an_error(printed: str, message: str) -> None:
    with pytest.raises(SubordinateIdsError, match=message):
        parse_ids(printed)


@pytest.mark.parametrize(
    ("ids", "per_pod", "pods", "message"),
    [
        (IdRange(65537, 131072), LENGTH, 1, "kubelet user assigned ID 65537 is not a multiple of 65536"),
        (IdRange(0, 131072), LENGTH, 1, "kubelet user assigned ID 0 must be greater or equal to 65536"),
        (IdRange(65536, 65537), LENGTH, 1, "kubelet user assigned IDs length 65537 is not a multiple of 65536"),
        (IdRange(65536, 109 * LENGTH), LENGTH, 110, "kubelet user assigned IDs are not enough to support 110 pods"),
        (IdRange(65536, 110 * LENGTH), 2 * LENGTH, 110, "kubelet user assigned ID 65536 is not a multiple of 131072"),
        (IdRange(65536, 110 * LENGTH), LENGTH, 110, ""),
    ],
)
def test_a_range_must_be_whole_parts_and_enough(ids: IdRange, per_pod: int, pods: int, message: str) -> None:
    if not message:
        verify(ids, per_pod, pods)
        return
    with pytest.raises(SubordinateIdsError) as refused:
        verify(ids, per_pod, pods)
    assert str(refused.value) == message


async def test_without_such_a_user_everything_but_the_nodes_ids_is_for_pods() -> None:
    assert await usable(LENGTH, 110, "nobody-has-this-name") == IdRange(LENGTH, (1 << 32) - LENGTH)
    found = await usable(3 * LENGTH, 110, "nobody-has-this-name")
    assert found.first == 3 * LENGTH and found.count % (3 * LENGTH) == 0 and found.first + found.count <= 1 << 32


def test_the_number_of_ids_is_a_multiple_of_65536() -> None:
    def built(count: int) -> int:
        file, _ = parse(HEAD + f"userNamespaces: {{idsPerPod: {count}}}\n")
        return configure.build(file, Flags()).ids_per_pod

    assert built(131072) == 131072
    for count in (0, 1000, 65537, 1 << 32):
        with pytest.raises(ConfigError, match="idsPerPod"):
            built(count)


def test_a_pod_whose_ids_are_not_known_is_not_mapped_to_the_nodes_users(tmp_path: Path) -> None:
    given = first(UserNamespaces(tmp_path, IdRange()), "a")
    file = tmp_path / "a" / "userns"
    whole = file.read_text()
    file.write_text("")
    users = UserNamespaces(tmp_path, IdRange())
    users.load()
    for uid in ("a", "never"):
        with pytest.raises(
            UserNamespaceError, match=r"hostUsers: false`, the IDs that the pod was given are not known"
        ):
            users.ids(one(uid))
    file.write_text(whole)
    users.load_unread()
    assert [mapping.host_id for mapping in users.ids(one("a"))] == [given]
