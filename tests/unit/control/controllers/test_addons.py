"""Addons without a server: files and whom they may be of, objects and their order, ApplySets, files over time."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from control.controllers.addons import applyset, confidential, folder, members
from control.controllers.addons.applyset import GroupKind, Parent, addon_identifier, identifier, is_parent_of
from control.controllers.addons.folder import AddonFile, FileChanged, FileRefused, FolderRefused
from control.controllers.addons.kinds import Kinds, StaleGroup
from control.controllers.addons.manifest import Manifest, ManifestError, parse, phases
from control.controllers.addons.record import Record
from control.controllers.addons.tracking import Files
from control.controllers.discovery import DiscoveredResource
from control.controllers.step_counter import REQUEST_STEPS, STEPS_PER_ITERATION
from kube import serialize
from kube.api import core_v1
from kube.client import Client, Response
from kube.errors import StatusError

OWN = {os.geteuid()}


# -- the folder ---------------------------------------------------------------------------------------------------------
@pytest.fixture
def place(tmp_path: Path) -> Path:
    tmp_path.chmod(0o750)
    return tmp_path


def put(place: Path, name: str, text: str = "x", mode: int = 0o640) -> Path:
    path = place / name
    path.write_text(text)
    path.chmod(mode)
    return path


def problems(place: Path) -> dict[str, str]:
    return {file.path.name: file.problem for file in folder.scan(place, OWN)}


def test_files_are_addons_by_their_names(place: Path) -> None:
    for name in ("web.yaml", "db.yml", "x-1.json", ".hidden.yaml", "web.yaml~", "README.md"):
        put(place, name)
    (place / "folder").mkdir()
    assert [(file.name, file.problem) for file in folder.scan(place, OWN)] == [("db", ""), ("web", ""), ("x-1", "")]


def test_a_name_that_is_no_label_or_is_built_in_is_refused(place: Path) -> None:
    for name in ("Web.yaml", "a.b.yaml", "metrics.yaml"):
        put(place, name)
    found = {file.path.name: file for file in folder.scan(place, OWN)}
    assert not any(file.is_addon for file in found.values())
    assert "rename the file" in found["Web.yaml"].problem and "rename the file" in found["a.b.yaml"].problem
    assert found["metrics.yaml"].problem == "metrics is a built-in addon: rename the file"


def test_two_files_of_one_name_are_both_refused(place: Path) -> None:
    put(place, "a.yaml")
    put(place, "a.json")
    text = f"{place} has several files of the addon a: keep one of them"
    assert problems(place) == {"a.json": text, "a.yaml": text}


@pytest.mark.parametrize("mode", [0o660, 0o606, 0o666])
def test_a_file_that_others_may_write_is_refused(place: Path, mode: int) -> None:
    path = put(place, "a.yaml", mode=mode)
    text = f"{path} may be written by others than its owner: chmod go-w {path}"
    assert problems(place) == {"a.yaml": text}
    (file,) = folder.scan(place, OWN)
    with pytest.raises(FileRefused, match="chmod go-w"):
        folder.read(file, OWN)


@pytest.mark.parametrize("mode", [0o770, 0o757, 0o1777])
def test_a_folder_that_others_may_write_is_refused(place: Path, mode: int) -> None:
    put(place, "a.yaml")
    (file,) = folder.scan(place, OWN)
    place.chmod(mode)
    with pytest.raises(FolderRefused, match=f"chmod go-w {place}"):
        folder.scan(place, OWN)
    with pytest.raises(FileRefused, match=f"chmod go-w {place}"):
        folder.read(file, OWN)


def test_files_and_folders_of_other_accounts_are_refused(place: Path) -> None:
    path, uid = put(place, "a.yaml"), os.geteuid()
    (file,) = folder.scan(place, OWN)
    with pytest.raises(FolderRefused, match=f"{place} is owned by the account {uid}: chown root {place}"):
        folder.scan(place, {uid + 1})
    text = f"{path} is owned by the account {uid}: chown root {path}"
    assert folder._problem(path, path.stat(), {uid + 1}) == text
    assert folder.read(file, OWN) == b"x"


def test_links_and_what_is_no_file_are_refused(place: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = put(tmp_path_factory.mktemp("elsewhere"), "b.yaml")
    (place / "a.yaml").symlink_to(elsewhere)
    os.mkfifo(place / "b.yaml", 0o600)
    assert problems(place) == {
        "a.yaml": f"{place / 'a.yaml'} is a symbolic link: copy the file",
        "b.yaml": f"{place / 'b.yaml'} is not a regular file: remove it",
    }
    for file in folder.scan(place, OWN):
        with pytest.raises(FileRefused):
            folder.read(file, OWN)
    link = place.parent / f"{place.name}-link"
    link.symlink_to(place)
    with pytest.raises(FolderRefused, match="cannot be opened"):
        folder.scan(link, OWN)
    with pytest.raises(FolderRefused, match=r"there is no folder .*nowhere: `wherry up` creates it"):
        folder.scan(place / "nowhere", OWN)


def test_a_file_that_changed_since_the_scan_or_is_too_large_is_refused(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(place, "a.yaml")
    (file,) = folder.scan(place, OWN)
    path.write_text("longer")
    with pytest.raises(FileChanged):
        folder.read(file, OWN)
    path.unlink()
    with pytest.raises(FileChanged):
        folder.read(file, OWN)
    put(place, "a.yaml", "longer")
    monkeypatch.setattr(folder, "MOST_BYTES", 3)
    assert "split it" in problems(place)["a.yaml"]


# -- objects ------------------------------------------------------------------------------------------------------------
def objects(text: str) -> list[Manifest]:
    return parse(text.encode(), "applyset-x-v1")


def test_documents_and_lists_are_objects_of_the_applyset() -> None:
    text = """# a comment
---
apiVersion: v1
kind: ConfigMap
metadata: {name: a, namespace: shop, labels: {x: z}, uid: u, resourceVersion: "1", managedFields: []}
data: {text: "--- no separator"}
--- # another
---
{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "b"}}]}
"""
    first, second = objects(text)
    assert (str(first), str(second)) == ("ConfigMap shop/a", "Deployment.apps b")
    assert first.object["metadata"] == {
        "name": "a",
        "namespace": "shop",
        "labels": {"x": "z", "applyset.kubernetes.io/part-of": "applyset-x-v1"},
    }
    assert second.api_version == "apps/v1" and first.digest != second.digest


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file has no object: remove the file to delete the addon's objects"),
        ("---\n# nothing\n---\n", "the file has no object: remove the file to delete the addon's objects"),
        ("[1]", "document 1: expected an object"),
        ("a: [", "document 1: yaml: "),
        ("kind: A\nmetadata: {name: a}", "document 1: apiVersion is required"),
        ("apiVersion: v1\nmetadata: {name: a}", "document 1: kind is required"),
        ("apiVersion: v1\nkind: A", "document 1: A: metadata is required"),
        ("apiVersion: v1\nkind: A\nmetadata: {generateName: a}", "document 1: A: metadata.name is required"),
        ("apiVersion: v1\nkind: A\nmetadata: {name: ../a}", "document 1: A: metadata.name '../a': "),
        ("apiVersion: v1\nkind: A\nmetadata: {name: a, namespace: 1}", "document 1: A a: metadata.namespace"),
        ("apiVersion: v1\nkind: A\nmetadata: {name: a, namespace: n}", "document 1: A a: metadata.namespace False"),
        ("apiVersion: v1\nkind: A\nmetadata: {name: a, namespace: ../b}", "document 1: A a: metadata.namespace"),
        ("apiVersion: v1\nkind: A\nmetadata: {name: a, labels: [a]}", "document 1: A a: metadata.labels is not"),
        (
            "apiVersion: v1\nkind: A\nmetadata: {name: a, labels: {applyset.kubernetes.io/part-of: x}}",
            "document 1: A a: remove the label",
        ),
        ("apiVersion: v1\nkind: A\nmetadata: {name: a}\n---\nkind: B", "document 2: apiVersion is required"),
        ("apiVersion: v1\nkind: A\nkind: B\nmetadata: {name: a}", "document 1: line 3: key "),
        ("apiVersion: v1\nkind: A\nmetadata: {name: a}\n---\n" * 2, "A a is in the file twice"),
    ],
)
def test_a_file_with_a_fault_is_refused_as_a_whole(text: str, message: str) -> None:
    with pytest.raises(ManifestError) as raised:
        objects(text)
    assert str(raised.value).startswith(message)


def test_namespaces_and_definitions_come_first_and_webhooks_last() -> None:
    def text(kind: str, group: str, name: str) -> str:
        return f"---\napiVersion: {group}v1\nkind: {kind}\nmetadata: {{name: {name}}}\n"

    found = objects(
        text("ValidatingWebhookConfiguration", "admissionregistration.k8s.io/", "w")
        + text("ConfigMap", "", "c")
        + text("CustomResourceDefinition", "apiextensions.k8s.io/", "d")
        + text("Namespace", "example.com/", "other")
        + text("Namespace", "", "space")
    )
    assert [[each.name for each in phase] for phase in phases(found)] == [["d", "space"], ["c", "other"], ["w"]]


# -- ApplySets ----------------------------------------------------------------------------------------------------------
def test_the_identifier_is_that_of_the_kep() -> None:
    assert identifier("my-set", "test", "Secret") == "applyset-0eFHV8ySqp7XoShsGvyWFQD3s96yqwHmzc4e0HR1dsY-v1"
    assert len(addon_identifier("a" * 63)) <= 63


def test_a_parent_is_read_as_it_was_written() -> None:
    kinds = frozenset({GroupKind("apps", "Deployment"), GroupKind("", "ConfigMap")})
    parent = Parent("web", kinds, frozenset({"kube-system", "shop"}), "web.yaml", "d", "10.0.0.1", "Applied", "m", 7)
    written = serialize.decode(serialize.encode(parent.as_object()), core_v1.ConfigMap)
    annotations = written.metadata.annotations
    assert annotations[applyset.GROUP_KINDS] == "ConfigMap,Deployment.apps"
    assert annotations[applyset.NAMESPACES] == "shop"
    assert Parent.read(written).namespaces == {"shop"} and Parent.read(written).kinds == kinds
    assert Parent.read(written) == Parent(
        "web", kinds, frozenset({"shop"}), *("web.yaml", "d", "10.0.0.1"), *("Applied", "m", 7)
    )
    assert is_parent_of("web", written) and not is_parent_of("other", written)
    written.metadata.annotations[applyset.TOOLING] = "kubectl/v1.32.0"
    assert not is_parent_of("web", written)


def test_a_namespace_of_a_parent_that_can_be_none_is_left_out() -> None:
    parent = Parent("web", namespaces=frozenset({"shop", "evil/pods/p:80/proxy/list?x=", "..", "a b"}))
    written = serialize.decode(serialize.encode(parent.as_object()), core_v1.ConfigMap)
    assert Parent.read(written).namespaces == {"shop"}


async def test_a_member_is_of_the_namespace_that_was_asked_for() -> None:
    asked: list[str] = []
    item = {"metadata": {"name": "one", "namespace": "victim/secrets/s?x=", "uid": "u", "resourceVersion": "1"}}

    async def request(method: str, path: str, **options: Any) -> Response:
        asked.append(f"{method} {path}")
        return Response(200, {}, json.dumps({"items": [item]}).encode())

    client = Client(cast(Any, SimpleNamespace(request=request)))
    maps = DiscoveredResource("", "v1", "configmaps", "ConfigMap", True, frozenset())
    kinds = cast(Any, SimpleNamespace(pruned=lambda kinds: [maps]))
    found = await members.listed(client, kinds, "x", [GroupKind("", "ConfigMap")], ["shop", "b?c="])
    assert {(key.namespace, key.name) for key in found} == {("shop", "one"), ("b?c=", "one")}
    for member in found.values():
        await members.delete(client, member)
    assert sorted(asked) == [
        "DELETE /api/v1/namespaces/b%3Fc%3D/configmaps/one",
        "DELETE /api/v1/namespaces/shop/configmaps/one",
        "GET /api/v1/namespaces/b%3Fc%3D/configmaps",
        "GET /api/v1/namespaces/shop/configmaps",
    ]


def test_a_parent_with_too_many_names_lists_everything() -> None:
    few, many = frozenset({"a", "b"}), frozenset(f"n{number}" for number in range(applyset.MOST_NAMES + 1))
    parent = Parent("web", frozenset(GroupKind("", name) for name in many), many)
    for each in (
        parent,
        dataclasses.replace(Parent("web"), kinds=parent.kinds | {GroupKind("", "a")}, namespaces=many),
    ):
        annotations = each.as_object()["metadata"]["annotations"]
        assert annotations[applyset.GROUP_KINDS] == annotations[applyset.NAMESPACES] == "*"
    written = parent.as_object()
    assert Parent.read(serialize.decode(serialize.encode(written), core_v1.ConfigMap)) == parent
    for text in (",".join(many), "," * 200_000):  # somebody else's
        written["metadata"]["annotations"] |= {applyset.GROUP_KINDS: text, applyset.NAMESPACES: text}
        assert Parent.read(serialize.decode(serialize.encode(written), core_v1.ConfigMap)) == parent
    assert dataclasses.replace(parent, namespaces=few).namespaces == few


class Lister:
    """A server in the process, which has objects in some namespaces: its answers suspend nothing."""

    def __init__(self, *items: tuple[str, str]) -> None:
        self.asked: list[str] = []
        self.items = [
            {"metadata": {"name": name, "namespace": namespace, "uid": name, "resourceVersion": "1"}}
            for namespace, name in items
        ]
        self.client = Client(cast(Any, SimpleNamespace(request=self.request)))

    async def request(self, method: str, path: str, **options: Any) -> Response:
        self.asked.append(path)
        return Response(200, {}, json.dumps({"items": self.items}).encode())


def kinds_with(*resources: DiscoveredResource, stale: tuple[str, ...] = ()) -> Kinds:
    kinds = Kinds(cast(Any, None), cast(Any, None))
    kinds._pruned = {GroupKind.of(each): each for each in resources}
    kinds._stale = frozenset(stale)
    return kinds


MAPS = DiscoveredResource("", "v1", "configmaps", "ConfigMap", True, frozenset())
NODES = DiscoveredResource("", "v1", "nodes", "Node", False, frozenset())


async def test_objects_in_many_namespaces_are_listed_at_once() -> None:
    names = [f"n{number}" for number in range(members.MOST_LISTED_APART + 1)]
    server = Lister(("n1", "a"), ("victim", "b"), ("n2", "c"))
    found = await members.listed(server.client, kinds_with(MAPS), "x", [GroupKind.of(MAPS)], names)
    assert server.asked == ["/api/v1/configmaps"]
    assert {(key.namespace, key.name) for key in found} == {("n1", "a"), ("n2", "c")}


async def test_all_kinds_and_namespaces_are_listed_for_everything() -> None:
    server, kinds = Lister(("n1", "a"), ("n2", "c")), kinds_with(MAPS, NODES)
    found = await members.listed(server.client, kinds, "x", {applyset.EVERY_KIND}, {applyset.EVERYTHING, "kube-system"})
    assert server.asked == ["/api/v1/configmaps", "/api/v1/nodes"]
    assert {str(key) for key in found} == {"ConfigMap n1/a", "ConfigMap n2/c", "Node a", "Node c"}
    with pytest.raises(StaleGroup):
        await members.listed(
            server.client, kinds_with(MAPS, stale=("example.com",)), "x", {applyset.EVERY_KIND}, {"kube-system"}
        )


async def test_lists_yield_to_the_event_loop() -> None:
    resources = [msgspec.structs.replace(MAPS, kind=f"Kind{number}") for number in range(50)]
    server, seen = Lister(), list[int]()

    async def others() -> None:
        while True:
            seen.append(len(server.asked))
            await asyncio.sleep(0)

    other = asyncio.create_task(others())
    try:
        await members.listed(
            server.client, kinds_with(*resources), "x", [GroupKind.of(each) for each in resources], ["a", "b", "c"]
        )
    finally:
        other.cancel()
    assert len(server.asked) == 150
    assert max(after - before for before, after in itertools.pairwise(seen)) <= STEPS_PER_ITERATION // REQUEST_STEPS


# -- the record ---------------------------------------------------------------------------------------------------------
async def test_the_record_outlives_the_controller_and_a_damaged_one_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "addons.json"
    record = Record(path)
    assert "a" not in record and not path.exists()
    await asyncio.gather(record.add("a"), record.add("b"), record.discard("c"))
    assert "a" in Record(path) and "b" in Record(path) and path.stat().st_mode & 0o777 == 0o600
    await record.discard("a")
    assert "a" not in Record(path) and "b" in Record(path)
    path.write_text("{")
    assert "b" not in Record(path)


# -- files over time ----------------------------------------------------------------------------------------------------
def file(name: str, *stamp: int) -> AddonFile:
    return AddonFile(name, Path(f"/addons/{name}.yaml"), stamp)


def test_a_change_and_an_absence_are_timed_from_when_they_were_seen() -> None:
    files = Files()
    assert files.update([file("a", 1)], 1.0) == (["a"], [])
    assert files.update([file("a", 1)], 2.0) == ([], [])
    assert files.get("a").since == 1.0  # type: ignore[union-attr]
    assert files.update([file("a", 2)], 3.0) == (["a"], []) and files.active() == ["a"]
    assert files.update([], 4.0) == (["a"], []) and files.active() == []
    assert files.update([], 5.0) == ([], []) and files.get("a").since == 4.0  # type: ignore[union-attr]
    files.expect("a", 6.0)
    assert files.get("a").since == 4.0  # type: ignore[union-attr]
    files.forget("a")
    assert files.get("a") is None


def test_a_file_that_can_be_no_addon_is_reported_once() -> None:
    files, bad = Files(), AddonFile("A", Path("/addons/A.yaml"), (1,), "rename it")
    assert files.update([bad], 1.0) == ([], ["rename it"])
    assert files.update([bad], 2.0) == ([], [])
    assert files.update([], 3.0) == files.update([], 4.0) == ([], [])
    assert files.update([bad], 5.0) == ([], ["rename it"])


# -- Secrets ------------------------------------------------------------------------------------------------------------
VALUE = "hunter2"


@pytest.mark.parametrize(
    ("written", "line"),
    [
        (f"  password: *{VALUE}", 5),
        (f"  password: !!int {VALUE}", None),
        (f"  password: !{VALUE}!x y", 4),
        (f"  {VALUE}: x\n  {VALUE}: y", 6),
        (f"  ? [{VALUE}]\n  : y", None),
        (f"  {VALUE}", None),
        (f'  password: "{VALUE}', 6),
        (f'  password: "\\{VALUE}"', None),
        (f"  password: &{VALUE} &{VALUE}2 x", None),
    ],
)
def test_an_error_of_a_document_with_a_secret_has_none_of_its_texts(written: str, line: int | None) -> None:
    text = f"apiVersion: v1\nkind: Secret\nmetadata: {{name: a}}\nstringData:\n{written}\n"
    try:
        parse(text.encode(), "x")
    except ManifestError as error:
        assert VALUE not in str(error)
        assert "the text is not shown, because the document may have a Secret" in str(error)
        assert line is None or f"document 1: line {line}: " in str(error)
    else:
        assert line is None  # the API server refuses it
    other = text.replace("Secret", "ConfigMap").replace("stringData", "data")
    if line == 5 and "*" in written:
        with pytest.raises(ManifestError, match=rf"aliases \(\*{VALUE}\) are not accepted"):
            parse(other.encode(), "x")


@pytest.mark.parametrize(
    ("code", "reason", "message", "causes", "shown"),
    [
        (500, "", f'failed (default/a): .stringData: got "{VALUE}"', (), "500 (stringData)"),
        (400, "BadRequest", f'Secret in version "v1" cannot be handled: {VALUE}', (), "BadRequest"),
        (422, "Invalid", f'data[{VALUE}]: Invalid value: "{VALUE}"', (f"data[{VALUE}]",), "Invalid (data)"),
        (422, "Invalid", "x", ("metadata.name", "type", VALUE), "Invalid (metadata, type)"),
        (403, "Forbidden", f'admission webhook "w" denied the request: {VALUE} is weak', (), "Forbidden"),
    ],
)
def test_an_error_about_a_secret_has_its_reason_and_fields_alone(
    code: int, reason: str, message: str, causes: tuple[str, ...], shown: str
) -> None:
    error = StatusError(code, reason, message, {"causes": [{"field": each, "message": VALUE} for each in causes]})
    text = confidential.of_request(GroupKind("", "Secret"), error)
    assert text == f"{shown}; the text is not shown, because the object is a Secret"
    assert confidential.of_request(GroupKind("", "ConfigMap"), error) == message
