"""Images that an administrator has loaded: the access that their label gives, and reports of images that records close."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent.assembly.images import _report_closed
from agent.images.image_access import ImageAccess
from agent.images.loaded_images import is_open
from agent.images.names import LOADED
from cri.client import Client
from cri.containerd_service import ImageName
from cri.errors import UnavailableError
from tests.support.image_records import ID, IMAGE, NOW, Pulls, by_secret, made, pull

OTHER = "r.test/other:1"


class Labelled(Pulls):
    """A containerd in which IDs of images have the labels of loaded names."""

    def __init__(self, loaded: dict[str, str]) -> None:
        super().__init__(None, None, ID)
        self.loaded = loaded

    async def image_name(self, name: str) -> ImageName | None:
        labels = {f"{LOADED}{self.loaded[name]}": "true", "io.cri-containerd.image": "managed"}
        return ImageName(name, "", 0.0, pinned=False, labels=labels)


def client(service: Pulls) -> Client:
    return cast(Client, SimpleNamespace(images=service, containerd=service))


@pytest.mark.parametrize(
    ("policy", "allowed", "opens"),
    [
        ("NeverVerifyPreloadedImages", (), True),
        ("NeverVerifyAllowlistedImages", ("r.test/app",), True),
        ("NeverVerifyAllowlistedImages", ("r.test/another",), False),
        ("AlwaysVerify", (), False),
    ],
)
@pytest.mark.parametrize("is_listed", [False, True])
@pytest.mark.parametrize("is_pulled", [False, True])
async def test_a_loaded_image_is_open_as_far_as_the_policy_allows_it_of_preloaded_ones(
    tmp_path: Path, policy: str, allowed: tuple[str, ...], *, opens: bool, is_listed: bool, is_pulled: bool
) -> None:
    records, runtime = made(tmp_path, policy, *allowed), client(Labelled({ID: IMAGE}))
    records.abandoned(records.begin(IMAGE))
    if is_pulled:
        pull(records, by_secret("a"), OTHER)
    if is_listed:
        records.prune([(ID, [IMAGE])])
    for known in (records, made(tmp_path, policy, *allowed)):
        assert await is_open(runtime, known, IMAGE, ID) is opens
        assert not known.open_to_all(IMAGE, ID)


async def test_a_label_of_another_image_or_name_opens_nothing(tmp_path: Path) -> None:
    records, runtime = made(tmp_path), client(Labelled({ID: "r.test/app/more:1", "sha256:other": IMAGE}))
    records.abandoned(records.begin(IMAGE))
    assert not await is_open(runtime, records, IMAGE, ID) and await is_open(runtime, records, IMAGE, "sha256:other")
    records.prune([(ID, [IMAGE])])
    assert not await is_open(runtime, records, IMAGE, ID)


@pytest.mark.parametrize("name", ["app", "docker.io/library/app:2", f"index.docker.io/library/app@{ID}"])
async def test_a_loaded_image_is_open_in_all_spellings_and_under_all_tags_of_its_name(
    tmp_path: Path, name: str
) -> None:
    records, runtime = made(tmp_path), client(Labelled({ID: "docker.io/library/app:1"}))
    pull(records, by_secret("a"), "app:2")
    assert await is_open(runtime, records, name, ID) and not records.open_to_all(name, ID)


async def test_a_loaded_image_stays_open_under_its_other_names(tmp_path: Path) -> None:
    records = made(tmp_path)
    for name in (IMAGE, "r.test/pulled:1"):
        records.abandoned(records.begin(name))
    records.prune([(ID, [IMAGE, OTHER, "r.test/pulled:1"])])
    assert records.open_to_all(IMAGE, ID) and records.open_to_all(OTHER, ID)


async def test_runtimes_without_labels_have_no_loaded_images(tmp_path: Path) -> None:
    records = made(tmp_path)
    records.abandoned(records.begin(IMAGE))
    assert not await is_open(client(Pulls(None, ID)), records, IMAGE, ID)


def test_a_record_that_closes_an_image_is_reported_once_with_the_namespaces_that_pulled_it(tmp_path: Path) -> None:
    closed: list[tuple[str, str, Sequence[str]]] = []
    records = ImageAccess(tmp_path, lambda: NOW, closed=lambda *found: closed.append(found))
    records.load()
    for number in range(30):
        records.abandoned(records.begin(IMAGE, namespace=f"n{number:02}"))
    for _ in range(2):
        records.prune([(ID, [IMAGE, "r.test/app@sha256:00"])])
    assert closed == [(IMAGE, ID, [f"n{number:02}" for number in range(5)])]


class Node:
    """The parts of the agent that the report of a closed image uses."""

    def __init__(self, service: Pulls) -> None:
        self.config = SimpleNamespace(node_name="n1")
        self.runtime = SimpleNamespace(client=client(service))
        self.events: list[tuple[Any, ...]] = []
        self.recorder = SimpleNamespace(event=lambda *found: self.events.append(found))


async def test_the_report_of_a_closed_image_names_it_and_is_no_longer_than_an_event(tmp_path: Path) -> None:
    node, image_ref, namespaces = Node(Pulls(None, ID)), f"sha256:{'a' * 64}", [f"{n:063}" for n in range(5)]
    records = made(tmp_path, "AlwaysVerify")
    await _report_closed(cast(Any, node), records, "r.test/" + "a" * 2000, image_ref, namespaces)
    ((about, kind, reason, text),) = node.events
    assert (about.kind, about.name, kind, reason) == ("Node", "n1", "Warning", "ImageClosed")
    assert text.startswith("Image r.test/aaa") and text.endswith("opens it to all pods") and len(text) <= 1024


async def test_a_loaded_image_is_not_reported_as_closed(tmp_path: Path) -> None:
    class Away(Pulls):
        async def image_name(self, name: str) -> ImageName | None:
            raise UnavailableError("away", code="UNAVAILABLE")

    records = made(tmp_path)
    records.abandoned(records.begin(IMAGE))
    for service, reported in ((Labelled({ID: IMAGE}), 0), (Labelled({ID: OTHER}), 1), (Away(None, ID), 1)):
        node = Node(service)
        await _report_closed(cast(Any, node), records, IMAGE, ID, [])
        assert len(node.events) == reported
