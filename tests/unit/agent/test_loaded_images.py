"""Images that an administrator has loaded: the access that their label gives, and reports of images that records close."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent.assembly.images import _report_closed
from agent.images.image_access import ImageAccess
from agent.images.loaded_images import loaded_names, open_loaded
from agent.images.names import LOADED
from cri.client import Client
from cri.containerd_service import ImageName
from cri.errors import UnavailableError
from tests.support.image_records import ID, IMAGE, NOW, Pulls, by_secret, made, pull

OTHER = "r.test/other:1"


class Labelled(Pulls):
    """A containerd in which names of images have the label of loaded ones."""

    def __init__(self, labels: dict[str, str]) -> None:
        super().__init__(None, None, ID)
        self.names = {name: ImageName(name, "", 0.0, pinned=False, labels={LOADED: id}) for name, id in labels.items()}

    async def labelled_image_names(self, label: str) -> list[ImageName]:
        return list(self.names.values())

    async def image_name(self, name: str) -> ImageName | None:
        return self.names.get(name)


def client(service: Pulls) -> Client:
    return cast(Client, SimpleNamespace(images=service, containerd=service))


@pytest.mark.parametrize(
    ("policy", "allowed", "is_open"),
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
    tmp_path: Path, policy: str, allowed: tuple[str, ...], *, is_open: bool, is_listed: bool, is_pulled: bool
) -> None:
    records, runtime = made(tmp_path, policy, *allowed), client(Labelled({IMAGE: ID}))
    records.abandoned(records.begin(IMAGE))
    if is_pulled:
        pull(records, by_secret("a"), OTHER)
    if is_listed:
        records.prune([(ID, [IMAGE])], loaded=await loaded_names(runtime))
        assert records.open_to_all(IMAGE, ID) is is_open
    assert await open_loaded(runtime, records, IMAGE, ID) is is_open
    again = made(tmp_path, policy, *allowed)
    assert again.open_to_all(IMAGE, ID) is is_open and not again.open_to_all(OTHER, ID)


@pytest.mark.parametrize("labelled", [{IMAGE: "sha256:other"}, {OTHER: ID}, {}])
async def test_a_label_of_another_image_or_name_opens_nothing(tmp_path: Path, labelled: dict[str, str]) -> None:
    records, runtime = made(tmp_path), client(Labelled(labelled))
    records.abandoned(records.begin(IMAGE))
    assert not await open_loaded(runtime, records, IMAGE, ID)
    records.prune([(ID, [IMAGE])], loaded=await loaded_names(runtime))
    assert not records.open_to_all(IMAGE, ID)


async def test_a_loaded_image_stays_open_under_its_other_names(tmp_path: Path) -> None:
    records, runtime = made(tmp_path), client(Labelled({IMAGE: ID}))
    records.abandoned(records.begin(IMAGE))
    records.abandoned(records.begin("r.test/pulled:1"))
    records.prune([(ID, [IMAGE, OTHER, "r.test/pulled:1"])], loaded=await loaded_names(runtime))
    assert records.open_to_all(IMAGE, ID) and records.open_to_all(OTHER, ID)


async def test_runtimes_without_labels_or_answers_have_no_loaded_images(tmp_path: Path) -> None:
    class Away(Labelled):
        async def labelled_image_names(self, label: str) -> list[ImageName]:
            raise UnavailableError("away", code="UNAVAILABLE")

    records = made(tmp_path)
    records.abandoned(records.begin(IMAGE))
    assert await loaded_names(client(Away({IMAGE: ID}))) == {} == await loaded_names(client(Pulls(None, ID)))
    assert not await open_loaded(client(Pulls(None, ID)), records, IMAGE, ID)


def test_a_record_that_closes_an_image_is_reported_once_with_the_namespaces_that_pulled_it(tmp_path: Path) -> None:
    closed: list[tuple[str, str, Sequence[str]]] = []
    records = ImageAccess(tmp_path, lambda: NOW, closed=lambda *found: closed.append(found))
    records.load()
    for number in range(30):
        records.abandoned(records.begin(IMAGE, namespace=f"n{number:02}"))
    for _ in range(2):
        records.prune([(ID, [IMAGE, "r.test/app@sha256:00"])])
    assert closed == [(IMAGE, ID, [f"n{number:02}" for number in range(5)])]


def test_the_report_of_a_closed_image_names_it_and_is_no_longer_than_an_event() -> None:
    events: list[tuple[Any, ...]] = []
    base = SimpleNamespace(
        config=SimpleNamespace(node_name="n1"), recorder=SimpleNamespace(event=lambda *found: events.append(found))
    )
    _report_closed(cast(Any, base), "r.test/" + "a" * 2000, f"sha256:{'a' * 64}", [f"{n:063}" for n in range(5)])
    ((about, kind, reason, text),) = events
    assert (about.kind, about.name, kind, reason) == ("Node", "n1", "Warning", "ImageClosed")
    assert text.startswith("Image r.test/aaa") and text.endswith("opens it to all pods") and len(text) <= 1024
