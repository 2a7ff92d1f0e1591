"""`wherry support-bundle` without a cluster: its target, and what it does about items that fail or are large."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import tarfile
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kube import pki, resources
from kube.clock import SYSTEM
from kube.errors import StatusError, Unreachable
from kube.gateway import objects
from kube.process import CommandError
from wherry import cluster, support_bundle, support_lists, support_objects
from wherry.errors import WherryError
from wherry.settings import Settings
from wherry.support_objects import ServerItems


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(prefix=str(tmp_path / "prefix"), node_name="n1")


Collected = list[str]


@pytest.fixture
def collected(monkeypatch: pytest.MonkeyPatch) -> Collected:
    """Have one item collected; with the times that it was."""
    times = Collected()

    async def item() -> str:
        times.append("item")
        return "text"

    groups(monkeypatch, {"item": item})
    return times


def groups(monkeypatch: pytest.MonkeyPatch, items: dict[str, support_objects.Item]) -> None:
    """Have only these items collected."""
    monkeypatch.setattr(support_bundle, "_groups", lambda settings, options, server: {"something": items})


class Lists:
    """An API server with pods; it counts requests, and each may take a time or fail."""

    def __init__(self, count: int, **pod: Any) -> None:
        self.pods = [{"metadata": {"name": f"p{number}"}, **pod} for number in range(count)]
        self.requests = list[Mapping[str, str]]()
        self.effects: Callable[[int], Awaitable[None]] | None = None

    @contextlib.asynccontextmanager
    async def connect(self, settings: Settings) -> AsyncIterator[Lists]:
        yield self

    async def call(self, method: str, path: str, *, query: Mapping[str, str]) -> bytes:
        self.requests.append(query)
        if self.effects is not None:
            await self.effects(len(self.requests))
        first = int(query.get("continue", "0"))
        end = first + int(query["limit"])
        metadata = {"resourceVersion": "7", **({"continue": str(end)} if end < len(self.pods) else {})}
        return json.dumps({"kind": "PodList", "metadata": metadata, "items": self.pods[first:end]}).encode()


async def listed(lists: Lists, monkeypatch: pytest.MonkeyPatch, settings: Settings) -> tuple[Any, list[str]]:
    """Return the list of pods in a bundle, and the first and last of its names."""
    monkeypatch.setattr(cluster, "connect", lists.connect)
    found = json.loads(await ServerItems(settings).lists()["cluster/pods.json"]())
    names = [pod["metadata"]["name"] for pod in found["items"]]
    return found, [names[0], names[-1]]


async def test_a_list_is_read_page_by_page(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    lists = Lists(250)
    found, names = await listed(lists, monkeypatch, settings)
    assert found["kind"] == "PodList" and names == ["p0", "p249"] and len(found["items"]) == 250
    assert "leftOut" not in found and [each.get("continue") for each in lists.requests] == [None, "100", "200"]


async def test_a_list_over_the_limit_of_size_is_json_and_says_so(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(support_objects, "MOST_BYTES", 1 << 20)
    lists = Lists(1000, status={"message": "a" * 10_000})
    found, names = await listed(lists, monkeypatch, settings)
    assert found["leftOut"] == "what follows 104 objects: more than 1 MiB" and names == ["p0", "p103"]
    assert len(lists.requests) == 2


async def test_a_page_that_fails_leaves_the_earlier_ones(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    lists = Lists(250)

    async def expired(number: int) -> None:
        if number == 2:
            raise StatusError(410, "Expired", "the token has expired")

    lists.effects = expired
    found, names = await listed(lists, monkeypatch, settings)
    assert names == ["p0", "p99"] and found["leftOut"] == "what follows 100 objects: the token has expired"


async def test_after_three_lists_that_took_too_long_no_other_is_requested(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists = Lists(1)

    async def hanging(number: int) -> None:
        await asyncio.Event().wait()

    lists.effects = hanging
    monkeypatch.setattr(support_objects, "SECONDS", 0.02)
    monkeypatch.setattr(support_objects, "LATER_SECONDS", 0.01)
    found = await collected_lists(lists, monkeypatch, ServerItems(settings))
    assert found[0] == "not collected: it took more than 0.02 s\n"
    assert found[1:3] == ["not collected: it took more than 0.01 s\n"] * 2
    why = "3 lists were not answered, the last because it took more than 0.01 s"
    assert set(found[3:]) == {f"not collected: it was not requested: {why}\n"} and len(lists.requests) == 3


async def collected_lists(lists: Lists, monkeypatch: pytest.MonkeyPatch, server: ServerItems) -> list[str]:
    monkeypatch.setattr(cluster, "connect", lists.connect)
    return [(await support_bundle._text(item))[0] for item in server.lists().values()]


@pytest.mark.parametrize("away", [True, False])
async def test_a_server_that_does_not_answer_is_asked_for_no_list(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, away: bool
) -> None:
    lists, server = Lists(1), ServerItems(settings)

    async def effects(number: int) -> None:
        if away:
            raise Unreachable("cannot reach the API server at https://a: no route to host")
        if number == 1:
            raise StatusError(500, "InternalError", "it is not ready")

    lists.effects = effects
    monkeypatch.setattr(cluster, "connect", lists.connect)
    assert (await support_bundle._text(server.readiness))[0].startswith("not collected: ")
    found = await collected_lists(lists, monkeypatch, server)
    if away:
        why = "it was not requested: cannot reach the API server at https://a: no route to host"
        assert set(found) == {f"not collected: {why}\n"} and len(lists.requests) == 1
    else:
        assert json.loads(found[0])["items"] and len(lists.requests) > 50


async def test_a_server_that_hangs_is_waited_for_once(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    lists, server = Lists(1), ServerItems(settings)

    async def hanging(number: int) -> None:
        await asyncio.Event().wait()

    lists.effects = hanging
    monkeypatch.setattr(cluster, "connect", lists.connect)
    monkeypatch.setattr(support_objects, "PROBE_SECONDS", 0.01)
    assert "did not answer within 0.01 s" in (await support_bundle._text(server.readiness))[0]
    await collected_lists(lists, monkeypatch, server)
    assert len(lists.requests) == 1


def test_every_kind_is_listed_but_those_with_secrets_and_copies() -> None:
    found = support_lists.paths()
    assert list(found)[:3] == ["nodes", "namespaces", "pods"]
    needed = {
        "ingresses": "/apis/networking.k8s.io/v1/ingresses",
        "gateways": "/apis/gateway.networking.k8s.io/v1/gateways",
        "httproutes": "/apis/gateway.networking.k8s.io/v1/httproutes",
        "replicasets": "/apis/apps/v1/replicasets",
        "certificatesigningrequests": "/apis/certificates.k8s.io/v1/certificatesigningrequests",
        "mutatingwebhookconfigurations": "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
        "validatingwebhookconfigurations": "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
        "storageclasses": "/apis/storage.k8s.io/v1/storageclasses",
        "customresourcedefinitions": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        "horizontalpodautoscalers": "/apis/autoscaling/v2/horizontalpodautoscalers",
        "events": "/api/v1/events",
    }
    assert found.items() >= needed.items()
    assert not [path for path in found.values() if path.rpartition("/")[2] in ("secrets", "configmaps", "tokenreviews")]
    gateway = {resources.of(kind).plural for kind in objects.KINDS}
    assert gateway <= found.keys()
    served = {each.plural for each in resources.RESOURCES if "list" in each.verbs}
    assert found.keys() | {plural for _, plural in support_lists.LEFT_OUT} == served | gateway


async def test_certificates_are_listed_with_their_end_and_without_keys(settings: Settings) -> None:
    made = pki.new_ca("kubernetes", SYSTEM.now())
    made.save(settings.layout.pki, "ca")
    (settings.layout.pki / "broken.crt").write_text("damaged")
    text = await support_bundle._of_wherry(settings, {}, ServerItems(settings))["certificates.yaml"]()
    assert f"path: {settings.layout.pki}/ca.crt" in text and "subject: kubernetes" in text and "expires: " in text
    assert f"path: {settings.layout.pki}/broken.crt" in text and "problem: it is no certificate in PEM" in text
    assert "PRIVATE" not in text and "BEGIN" not in text


async def test_any_error_of_an_item_is_in_its_place(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Deep(Lists):
        async def call(self, method: str, path: str, *, query: Mapping[str, str]) -> bytes:
            return b"[" * 100_000 + b"]" * 100_000

    monkeypatch.setattr(cluster, "connect", Deep(0).connect)

    async def item() -> str:
        return "text"

    groups(monkeypatch, {"cluster/pods.json": ServerItems(settings).lists()["cluster/pods.json"], "item": item})
    found = dict(texts(await support_bundle.create(settings, tmp_path / "a.tgz", {})))
    assert found["item"] == "text" and found["cluster/pods.json"].startswith("not collected: RecursionError: ")


async def test_a_large_output_loses_its_beginning_and_the_rest_of_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support_bundle, "MOST_BYTES", 1000)
    read = list[int]()

    async def pieces(argv: list[str], *, timeout: float) -> AsyncIterator[bytes]:
        for number in range(10):
            read.append(number)
            yield b"-----BEGIN RSA PRIVATE KEY-----\n" if not number else b"secret\n" * 100
        yield b"-----END RSA PRIVATE KEY-----\nfirst\n" + b"line\n" * 100

    monkeypatch.setattr(support_bundle, "pieces", pieces)
    assert await support_bundle._printed(["tail"]) == "first\n" + "line\n" * 100
    assert len(read) == 10


async def test_what_a_command_printed_before_it_was_killed_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    async def pieces(argv: list[str], *, timeout: float) -> AsyncIterator[bytes]:
        yield b"line\n"
        raise CommandError(argv, "killed")

    monkeypatch.setattr(support_bundle, "pieces", pieces)
    assert await support_bundle._printed(["tail"]) == "line\nnot complete: tail: killed\n"


def texts(path: Path) -> Iterator[tuple[str, str]]:
    with tarfile.open(path) as archive:
        for member in archive:
            file = archive.extractfile(member)
            assert file is not None
            yield member.name.partition("/")[2], file.read().decode()


async def test_a_target_that_cannot_be_written_is_refused_before_anything_is_collected(
    settings: Settings, collected: Collected, tmp_path: Path
) -> None:
    (tmp_path / "there").write_text("")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for name, problem in {
        "none/a.tgz": "there is no folder",
        "there/a.tgz": "there is no folder",
        "there": "exists: remove it",
        "dangling": "exists: remove it",
        "prefix": "prefix is a folder: name a file in it",
    }.items():
        (tmp_path / "prefix").mkdir(exist_ok=True)
        with pytest.raises(WherryError, match=problem):
            await support_bundle.create(settings, tmp_path / name, {})
    assert not collected
    made = await support_bundle.create(settings, tmp_path / "a.tgz", {})
    assert made == tmp_path / "a.tgz" and dict(texts(made)) == {"item": "text"}


async def test_a_bundle_whose_target_cannot_be_written_after_all_is_kept(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()

    async def removing() -> str:
        folder.rmdir()
        return "text"

    groups(monkeypatch, {"item": removing})
    with pytest.raises(WherryError, match=r"a\.tgz.*: the bundle is .*support/wherry-support-n1-.*tar\.gz instead$"):
        await support_bundle.create(settings, folder / "a.tgz", {})
    [kept] = (settings.layout.state / "support").glob("*.tar.gz")
    assert dict(texts(kept)) == {"item": "text"} and kept.stat().st_mode & 0o777 == 0o600


async def test_steps_are_shown_on_standard_error(
    settings: Settings, collected: Collected, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await support_bundle.create(settings, tmp_path / "a.tgz", {})
    shown = capsys.readouterr()
    assert shown.err.startswith("✓ collect something (1 items, ") and not shown.out


async def test_a_step_with_items_that_were_not_collected_has_no_green_mark(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = ServerItems(settings)
    server.away = "no route to host"
    groups(monkeypatch, server.lists())
    await support_bundle.create(settings, tmp_path / "a.tgz", {})
    assert re.match(r"! collect something \(0 of \d+ items, ", capsys.readouterr().err)


async def test_without_the_state_folder_the_bundle_is_among_temporary_files(
    settings: Settings,
    collected: Collected,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    state = settings.layout.state
    state.parent.mkdir(parents=True)
    state.write_text("a file, below which nothing can be created")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = await support_bundle.create(settings, None, {})
    assert made.parent == tmp_path and dict(texts(made)) == {"item": "text"} and made.stat().st_mode & 0o777 == 0o600
    assert f"{state}/support: not a directory: check the path: a part of it is a file" in capsys.readouterr().err
