"""Volume contents and their files, without mounts: payloads, atomic updates, paths that must not be written."""

from __future__ import annotations

import base64
import os
import stat
import tracemalloc
from pathlib import Path
from typing import Any, cast

import pytest

from agent.cgroups.cgroupfs import Limits
from agent.cgroups.tree import Cgroups
from agent.pods.references import references_of
from agent.pods.static import ManifestError, parse
from agent.pods.termination_messages import read_message, tail_log
from agent.podspec.environment import ContainerConfigError
from agent.volumes import atomic, cleanup, hostpath, mounts, ownership, subpath
from agent.volumes.atomic import File
from agent.volumes.manager import MountsFailed, VolumeManager
from agent.volumes.payload import MOST_BYTES, Sources, VolumeError, single_user, volume_payload
from agent.volumes.used import used_volumes
from kube.api import core_v1
from tests.unit.agent.pods import mounting, pod


class Objects:
    """ConfigMap `m` and Secret `s`."""

    def config_map(self, namespace: str, name: str) -> core_v1.ConfigMap | None:
        binary = {"bin": base64.b64encode(b"\xff\x00").decode()}
        return core_v1.ConfigMap(data={"a": "1", "b": "2"}, binary_data=binary) if name == "m" else None

    def secret(self, namespace: str, name: str) -> core_v1.Secret | None:
        return core_v1.Secret(data={"p": base64.b64encode(b"secret").decode()}) if name == "s" else None


def payload(volume: dict[str, Any], **spec: Any) -> dict[str, tuple[bytes, int]]:
    given = pod(volumes=[{"name": "v", **volume}], **spec)
    sources = Sources(
        Objects(), allocatable={"cpu": "4"}, tokens={("v", "token"): "abc"}, bundles={}, token_uid=single_user(given)
    )
    files = volume_payload(given, given.spec.volumes[0], sources)
    return {path: (file.data, file.mode) for path, file in files.items()}


def test_whole_objects_and_chosen_keys_become_files() -> None:
    assert payload({"configMap": {"name": "m"}}) == {
        "a": (b"1", 0o644),
        "b": (b"2", 0o644),
        "bin": (b"\xff\x00", 0o644),
    }
    items = [{"key": "a", "path": "x/y", "mode": 0o400}]
    assert payload({"configMap": {"name": "m", "items": items, "defaultMode": 0o600}}) == {"x/y": (b"1", 0o400)}
    assert payload({"secret": {"secretName": "s", "defaultMode": 0o440}}) == {"p": (b"secret", 0o440)}


def test_sources_are_projected_together_the_later_over_the_earlier() -> None:
    sources = [
        {"configMap": {"name": "m", "items": [{"key": "a", "path": "same"}]}},
        {"secret": {"name": "s", "items": [{"key": "p", "path": "same"}]}},
        {"serviceAccountToken": {"path": "token"}},
        {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
    ]
    found = payload({"projected": {"sources": sources}})
    assert found == {"same": (b"secret", 0o644), "token": (b"abc", 0o644), "name": (b"web", 0o644)}
    private = payload({"projected": {"sources": sources[2:3]}}, securityContext={"runAsUser": 7})
    assert private["token"] == (b"abc", 0o600)


@pytest.mark.parametrize(
    ("volume", "message"),
    [
        ({"configMap": {"name": "no"}}, 'configmap "no" not found'),
        ({"secret": {"secretName": "no"}}, 'secret "no" not found'),
        (
            {"configMap": {"name": "m", "items": [{"key": "z", "path": "z"}]}},
            "configmap references non-existent config key: z",
        ),
        (
            {"secret": {"secretName": "s", "items": [{"key": "z", "path": "z"}]}},
            "references non-existent secret key: z",
        ),
    ],
)
def test_what_is_missing_is_an_error_unless_it_is_optional(volume: dict[str, Any], message: str) -> None:
    with pytest.raises(VolumeError) as caught:
        payload(volume)
    assert str(caught.value) == message
    for source in volume.values():
        source["optional"] = True
    assert payload(volume) == {}


def _read(folder: Path) -> dict[str, bytes]:
    names = (p.relative_to(folder) for p in folder.rglob("*") if p.is_file() and ".." not in str(p.relative_to(folder)))
    return {str(name): (folder / name).read_bytes() for name in names}


def test_an_update_changes_all_files_at_once(tmp_path: Path) -> None:
    first = {"a": File(b"1", 0o644), "d/b": File(b"2", 0o600)}
    assert atomic.write(tmp_path, first)
    before = os.readlink(tmp_path / "..data")
    assert (tmp_path / "a").read_bytes() == b"1" and (tmp_path / "d/b").stat().st_mode & 0o777 == 0o600
    assert not atomic.write(tmp_path, first), "nothing changed"
    assert os.readlink(tmp_path / "..data") == before
    handle = (tmp_path / "..data/a").open("rb")
    assert atomic.write(tmp_path, {"a": File(b"new", 0o644), "c": File(b"3", 0o644)})
    with handle:
        assert handle.read() == b"1", "a reader keeps what it opened"
    assert (tmp_path / "a").read_bytes() == b"new" and not os.path.lexists(tmp_path / "d")
    assert not (tmp_path / before).exists() and len([p for p in tmp_path.iterdir() if p.name.startswith("..2")]) == 1
    assert atomic.write(tmp_path, {"a": File(b"new", 0o600)}), "a changed mode is a change"


@pytest.mark.parametrize("path", ["", "/etc/x", "../x", "a/../../x", "..data", "..x/y"])
def test_paths_that_leave_the_volume_are_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(atomic.PayloadError):
        atomic.write(tmp_path, {path: File(b"", 0o644)})
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_what_was_there(tmp_path: Path) -> None:
    atomic.write(tmp_path, {"a": File(b"1", 0o644)})
    with pytest.raises(OSError, match="File"):
        atomic.write(tmp_path, {"a": File(b"2", 0o644), "a/b": File(b"3", 0o644)})
    assert (tmp_path / "a").read_bytes() == b"1"
    assert len(list(tmp_path.iterdir())) == 3


def test_host_paths_are_made_or_checked_by_type(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    assert hostpath.prepare(str(tmp_path / "none"), "") == tmp_path / "none"
    assert hostpath.prepare(str(tmp_path / "d/e"), "DirectoryOrCreate").is_dir()
    assert hostpath.prepare(str(tmp_path / "g"), "FileOrCreate").is_file()
    for path, kind in (("none", "File"), ("f", "Directory"), ("d", "File"), ("f", "Socket"), ("f", "BlockDevice")):
        with pytest.raises(VolumeError, match="hostPath type check failed"):
            hostpath.prepare(str(tmp_path / path), kind)
    with pytest.raises(VolumeError):
        hostpath.prepare("relative", "")


def test_cleaning_up_follows_no_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "keep").write_text("x")
    folder = tmp_path / "pod"
    (folder / "volumes").mkdir(parents=True)
    (folder / "volumes/link").symlink_to(outside)
    cleanup.remove_tree(folder)
    assert not folder.exists() and (outside / "keep").exists()
    (tmp_path / "linked").symlink_to(outside)
    with pytest.raises(cleanup.CleanupError):
        cleanup.remove_tree(tmp_path / "linked")
    assert (outside / "keep").exists()


def test_termination_messages_are_read_without_following_links_and_to_a_limit(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "long").write_text("x" * 10_000)
    assert read_message(str(tmp_path / "link")) == read_message(str(tmp_path / "pipe")) == ""
    assert read_message(str(tmp_path / "none")) == "" and len(read_message(str(tmp_path / "long"))) == 4096
    lines = "".join(f"2026-01-01T00:00:00Z stdout F line {number}\n" for number in range(100))
    (tmp_path / "log").write_text(lines)
    tail = tail_log(str(tmp_path / "log"))
    assert tail.startswith("line 20\n") and tail.endswith("line 99\n")
    (tmp_path / "cut").write_text("t stdout F one\nt stdout P tw\nt stdout F o\nt stdout F \nt stderr P DONE\n")
    assert tail_log(str(tmp_path / "cut")) == "one\ntwo\n\nDONE"


def test_a_pod_names_the_objects_it_needs() -> None:
    given = pod(
        {
            "name": "main",
            "envFrom": [{"configMapRef": {"name": "c1"}}],
            "env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "s1", "key": "k"}}}],
        },
        volumes=[
            {"name": "v", "configMap": {"name": "c2"}},
            {"name": "w", "projected": {"sources": [{"secret": {"name": "s2"}}]}},
        ],
        imagePullSecrets=[{"name": "pull"}],
    )
    found = sorted((ref.kind.__name__, ref.name) for ref in references_of(given))
    assert found == [("ConfigMap", "c1"), ("ConfigMap", "c2"), ("Secret", "pull"), ("Secret", "s1"), ("Secret", "s2")]


def test_a_version_2_tree_is_made_from_the_root_with_its_controllers(tmp_path: Path) -> None:
    def controllers(folder: Path) -> None:
        (folder / "cgroup.controllers").write_text("cpu memory pids")
        (folder / "cgroup.subtree_control").write_text("")

    controllers(tmp_path)
    cgroups = Cgroups("/root", "cgroupfs", mount=tmp_path)
    assert cgroups.fs.v2
    given = pod(
        {"name": "main", "resources": {"limits": {"cpu": "500m", "memory": "64Mi"}, "requests": {"cpu": "250m"}}}
    )
    assert cgroups.pod_parent(given) == "/root/kubepods/burstable/poduid-1"
    cgroups.fs.ensure(cgroups.pod_path(given), Limits(cpu_shares=256, cpu_quota=50_000, memory=64 << 20, pids=9))
    folder = tmp_path / "root/kubepods/burstable/poduid-1"
    found = {name: (folder / name).read_text() for name in ("cpu.weight", "cpu.max", "memory.max", "pids.max")}
    assert found == {"cpu.weight": "35", "cpu.max": "50000 100000", "memory.max": str(64 << 20), "pids.max": "9"}
    assert (tmp_path / "cgroup.subtree_control").read_text() in ("+cpu", "+memory", "+pids")
    systemd = Cgroups("/", "systemd", mount=tmp_path)
    assert systemd.pod_parent(given) == "kubepods-burstable-poduid_1.slice"
    assert systemd.pod_path(given) == ("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poduid_1.slice")


def test_a_manifest_becomes_the_nodes_static_pod() -> None:
    text = "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: [{name: c, image: i}]}\n"
    found = parse(text, Path("/m/x.yaml"), "node-1", "now")
    assert (found.metadata.name, found.metadata.namespace, found.spec.node_name) == ("x-node-1", "default", "node-1")
    assert found.spec.containers[0].image_pull_policy == "Always"
    assert found.metadata.annotations["kubernetes.io/config.hash"] == found.metadata.uid
    assert parse(text, Path("/m/x.yaml"), "node-1", "later").metadata.uid == found.metadata.uid
    assert parse(text + "# changed", Path("/m/x.yaml"), "node-1", "now").metadata.uid != found.metadata.uid
    others = [
        parse(text, Path(os.fsdecode(b"/m/" + name)), "node-1", "now").metadata.uid for name in (b"\xff", b"\xfe")
    ]
    assert others[0] != others[1]


@pytest.mark.parametrize(
    "text",
    [
        "kind: Pod",
        "a: [",
        "apiVersion: v1\nkind: Service\n",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: []}\n",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: [{name: 5}]}\n",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: [{name: c}], serviceAccountName: y}\n",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n"
        "spec: {containers: [{name: c}], volumes: [{name: v, secret: {secretName: s}}]}\n",
    ],
)
def test_a_bad_manifest_is_refused(text: str) -> None:
    with pytest.raises(ManifestError):
        parse(text, Path("/m/x.yaml"), "node-1", "now")


async def test_each_volume_that_cannot_be_set_up_is_named_and_the_others_are_set_up(tmp_path: Path) -> None:
    nobody: Any = None
    manager = VolumeManager(tmp_path / "pods", Objects(), nobody, nobody, nobody)
    volumes = [
        {"name": "a", "configMap": {"name": "gone"}},
        {"name": "b", "hostPath": {"path": str(tmp_path / "made"), "type": "DirectoryOrCreate"}},
        {"name": "c", "secret": {"secretName": "lost"}},
        {"name": "d", "hostPath": {"path": str(tmp_path / "none"), "type": "Directory"}},
    ]
    with pytest.raises(MountsFailed) as failed:
        await manager.mount(pod(mounting("a", "b", "c", "d"), volumes=volumes))
    assert [str(error) for error in failed.value.failed] == [
        'MountVolume.SetUp failed for volume "a" : configmap "gone" not found',
        'MountVolume.SetUp failed for volume "c" : secret "lost" not found',
        f'MountVolume.SetUp failed for volume "d" : hostPath type check failed: {tmp_path}/none is not a directory',
    ]
    assert (tmp_path / "made").is_dir()


async def test_volumes_that_no_container_uses_are_not_set_up(tmp_path: Path) -> None:
    nobody: Any = None
    manager = VolumeManager(tmp_path / "pods", Objects(), nobody, nobody, nobody)
    variable = {"name": "X", "valueFrom": {"fileKeyRef": {"volumeName": "read", "path": "env", "key": "X"}}}
    given = pod(
        {**mounting("main"), "env": [variable]},
        {"name": "device", "volumeDevices": [{"name": "disk", "devicePath": "/dev/x"}]},
        init=[mounting("init")],
        ephemeralContainers=[{"image": "i", **mounting("late")}],
        volumes=[{"name": "unused", "persistentVolumeClaim": {"claimName": "missing"}}]
        + [{"name": name, "emptyDir": {}} for name in ("main", "init", "late", "read", "other")],
    )
    assert used_volumes(given) == {"main", "init", "late", "read", "disk"}
    mounted, _ = await manager.mount(given)
    assert mounted.keys() == {"main", "init", "late", "read"}


@pytest.mark.parametrize(
    ("given", "path", "refusal"),
    [
        ({"sub_path": "a/b"}, "a/b", ""),
        ({"sub_path_expr": "$(NAME)/$$(X)"}, "web/$(X)", ""),
        ({"sub_path_expr": "$(NONE)/$(EMPTY)/$(NAME)"}, "", "missing value for EMPTY, NONE"),
        ({"sub_path_expr": "$(UP)/x"}, "", "unable to provision SubPath `../x`: must not contain '..'"),
        ({"sub_path_expr": "$(ROOT)etc"}, "", "error SubPath `/etc` must not be an absolute path"),
    ],
)
def test_a_sub_path_is_expanded_or_refused_by_upstreams_words(given: dict[str, str], path: str, refusal: str) -> None:
    mount = core_v1.VolumeMount(name="v", mount_path="/v", **given)  # type: ignore[arg-type]
    env = {"NAME": "web", "EMPTY": "", "UP": "..", "ROOT": "/"}
    if refusal:
        with pytest.raises(ContainerConfigError) as error:
            subpath.named(mount, env)
        assert str(error.value) == refusal
    else:
        assert subpath.named(mount, env) == path


class Large(Objects):
    """Secret `large` of a MiB, and ConfigMap `many` of 10 000 keys; counts how often a value is read."""

    def config_map(self, namespace: str, name: str) -> core_v1.ConfigMap | None:
        return core_v1.ConfigMap(data={f"k{number}": "" for number in range(10_000)})

    def secret(self, namespace: str, name: str) -> core_v1.Secret | None:
        return core_v1.Secret(data={"large": base64.b64encode(bytes(1 << 20)).decode(), "small": "eA=="})


async def test_a_path_with_a_nul_is_an_invalid_argument_of_its_volume(tmp_path: Path) -> None:
    """The API accepts such paths, as upstream."""
    names = [{"path": "a\0b", "fieldRef": {"fieldPath": "metadata.name"}}]
    given = pod(
        mounting("fine", "host", "there", "map", "last"),
        volumes=[
            {"name": "fine", "emptyDir": {}},
            {"name": "host", "hostPath": {"path": f"{tmp_path}/a\0b", "type": "DirectoryOrCreate"}},
            {"name": "there", "hostPath": {"path": f"{tmp_path}/a\0b", "type": "Directory"}},
            {"name": "map", "configMap": {"name": "m", "items": [{"key": "a", "path": "x/a\0b"}]}},
            {"name": "last", "configMap": {"name": "m", "items": [{"key": "a", "path": "x/a\0b/c"}]}},
        ],
    )
    manager = VolumeManager(tmp_path, Objects(), cast(Any, None), cast(Any, None), cast(Any, None))
    with pytest.raises(MountsFailed) as caught:
        await manager.mount(given)
    assert [each.volume for each in caught.value.failed] == ["host", "there", "map", "last"]
    for each in caught.value.failed:
        assert str(each) == f'MountVolume.SetUp failed for volume "{each.volume}" : Invalid argument'
    assert projected({"downwardAPI": {"items": names}})
    with pytest.raises(OSError, match="Invalid argument"):
        mounts.bind(tmp_path / "a\0b", tmp_path)


async def test_a_sub_path_with_a_nul_is_an_error_of_the_containers_configuration(tmp_path: Path) -> None:
    manager = VolumeManager(tmp_path, Objects(), cast(Any, None), cast(Any, None), cast(Any, None))
    for mount in ({"subPath": "a\0b"}, {"subPathExpr": "$(X)"}):
        given = pod(
            volumes=[{"name": "v", "emptyDir": {}}],
            containers=[{"name": "c", "volumeMounts": [{"name": "v", "mountPath": "/v", **mount}]}],
        )
        mounted, _ = await manager.mount(given)
        with pytest.raises(
            ContainerConfigError, match='failed to prepare subPath for volumeMount "v" of container "c"'
        ):
            await manager.container_mounts(given, given.spec.containers[0], mounted, {"X": "a\0b"})


def projected(*sources: dict[str, Any]) -> dict[str, File]:
    given = pod(volumes=[{"name": "v", "projected": {"sources": list(sources)}}])
    return volume_payload(given, given.spec.volumes[0], Sources(Large()))


def secret_item(key: str, path: str) -> dict[str, Any]:
    return {"secret": {"name": "s", "items": [{"key": key, "path": path}]}}


def test_a_secret_that_is_projected_a_thousand_times_is_refused_before_it_fills_the_memory() -> None:
    tracemalloc.start()
    try:
        with pytest.raises(VolumeError, match="volumes have more than 67108864 bytes together"):
            projected(*(secret_item("large", f"p{number}") for number in range(1000)))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < MOST_BYTES + (8 << 20)
    files = projected(*(secret_item("large", f"p{number}") for number in range(60)))
    assert len(files) == 60


def test_of_an_object_only_the_items_that_are_wanted_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []
    real = base64.b64decode
    monkeypatch.setattr(base64, "b64decode", lambda text: decoded.append(len(text)) or real(text))
    assert len(projected(*(secret_item("small", f"p{number}") for number in range(1000)))) == 1000
    assert sum(decoded) == 4 * 1000


def test_files_and_folders_of_a_pods_volumes_are_bounded() -> None:
    with pytest.raises(VolumeError, match="more than 20000 files and folders together"):
        projected(*({"configMap": {"name": "many"}} for _ in range(3)))
    with pytest.raises(VolumeError, match="more than 20000 files and folders together"):
        projected(*(secret_item("small", f"{number}/" + "d/" * 2000 + "f") for number in range(11)))


async def test_a_pod_of_thousands_of_volumes_in_memory_gets_an_error(tmp_path: Path) -> None:
    names = [f"v{number}" for number in range(1025)]
    given = pod(mounting(*names), volumes=[{"name": name, "emptyDir": {"medium": "Memory"}} for name in names])
    manager = VolumeManager(tmp_path, Objects(), *[None] * 3)  # type: ignore[arg-type]
    with pytest.raises(
        MountsFailed, match='volume "v0" : the pod has 1025 mounts of volumes and subPaths, 1024 are allowed'
    ):
        await manager.mount(given)
    assert manager._own._prepared == {}


def test_the_list_of_mounts_is_read_once_for_all_volumes_and_subpaths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[Path] = []
    unmounted: list[Path] = []
    target = tmp_path / "0"
    monkeypatch.setattr(mounts, "mount_points", lambda below: reads.append(below) or [str(target), str(target)])
    monkeypatch.setattr(mounts, "unmount", unmounted.append)
    table = mounts.MountTable(tmp_path)
    assert reads == []
    assert table.has(target) and not table.has(tmp_path)
    for number in range(100):
        table.clear(tmp_path / str(number))
    table.clear(target)
    assert reads == [tmp_path] and unmounted == [target, target]


@pytest.mark.parametrize("swapped", ["file", "link"])
def test_a_file_put_in_anothers_place_while_it_is_given_keeps_its_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swapped: str
) -> None:
    volume, other = tmp_path / "volume", tmp_path / "other"
    volume.mkdir()
    (volume / "open").touch()
    (volume / "open").chmod(0o4777)
    other.touch()
    other.chmod(0o600)
    if swapped == "link":
        (tmp_path / "link").symlink_to(other)
    look, swaps = os.open, list[str]()

    def put(name: Any, flags: int, *arguments: Any, **options: Any) -> int:
        if name == "open" and not swaps:
            swaps.append(name)
            (other if swapped == "file" else tmp_path / "link").rename(volume / "open")
        return look(name, flags, *arguments, **options)

    monkeypatch.setattr(os, "open", put)
    ownership.set_ownership(volume, os.getgid())
    assert swaps
    assert stat.S_IMODE((volume / "open").stat().st_mode) == (0o660 if swapped == "file" else 0o600)


def test_links_in_a_volume_get_the_group_and_what_they_lead_to_does_not(tmp_path: Path) -> None:
    (tmp_path / "volume").mkdir()
    (tmp_path / "other").touch()
    (tmp_path / "volume" / "link").symlink_to(tmp_path / "other")
    before, group = (tmp_path / "other").stat(), os.getgid() + (1 if os.geteuid() == 0 else 0)
    ownership.set_ownership(tmp_path / "volume", group)
    after = (tmp_path / "other").stat()
    assert (tmp_path / "volume" / "link").lstat().st_gid == group
    assert (after.st_gid, after.st_mode) == (before.st_gid, before.st_mode)
