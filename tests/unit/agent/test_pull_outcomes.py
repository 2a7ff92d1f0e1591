"""Failed and abandoned pulls: the access to their image, and to others, that they leave."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent.images.image_access import ImageAccess
from agent.images.pull_intents import ABANDONED_SECONDS
from agent.images.pull_record_files import file_name
from agent.images.recorded_pulls import RecordedPulls
from cri.client import Client
from cri.errors import CRIError, UnavailableError
from cri.messages import Image
from tests.support.image_records import ID, IMAGE, NOW, Pulls, by_secret, made

UNRESOLVED = CRIError(f'failed to pull and unpack image "{IMAGE}": failed to resolve reference "{IMAGE}": refused')
CUT = CRIError(f'failed to pull and unpack image "{IMAGE}": failed to copy: failed to resolve reference "x"')
DIGEST = "r.test/app@sha256:00"
PRELOADED, OTHER = "docker.io/library/pre:1", "evil.test/same:1"


def pulls_of(runtime: object, access: ImageAccess) -> RecordedPulls:
    return RecordedPulls(cast(Client, SimpleNamespace(images=runtime, containerd=runtime)), access)


def test_a_refused_pull_does_not_end_an_abandoned_one(tmp_path: Path) -> None:
    now = [0.0]
    records = ImageAccess(tmp_path, lambda: NOW, monotonic=lambda: now[0])
    records.load()
    records.abandoned(records.begin(IMAGE))
    now[0] = ABANDONED_SECONDS + 1
    records.failed(records.begin(IMAGE, ID))
    records.tidy()
    assert not records.open_to_all(IMAGE, ID)
    records.prune([(ID, [IMAGE])], now[0])
    assert not records.open_to_all(IMAGE, ID) and not list((tmp_path / "pulling").iterdir())


def test_an_abandoned_pull_ends_by_a_list_that_was_requested_after_its_time_only(tmp_path: Path) -> None:
    now = [0.0]
    records = ImageAccess(tmp_path, lambda: NOW, monotonic=lambda: now[0])
    records.load()
    records.abandoned(records.begin(IMAGE))
    now[0] = ABANDONED_SECONDS + 1
    records.prune([], ABANDONED_SECONDS - 1)
    assert not records.open_to_all(IMAGE, ID), "the runtime has finished it since"


def test_an_image_whose_tag_has_moved_stays_closed_by_its_digest(tmp_path: Path) -> None:
    now = [0.0]
    records = ImageAccess(tmp_path, lambda: NOW, monotonic=lambda: now[0])
    records.load()
    records.abandoned(records.begin(IMAGE))
    pull = records.begin(IMAGE, ID)
    records.pulled(pull, IMAGE, "sha256:new", by_secret("a"), [IMAGE], names_are_exact=True)
    now[0] = ABANDONED_SECONDS + 1
    records.prune([("sha256:new", [IMAGE]), (ID, [DIGEST])], now[0])
    assert not records.open_to_all(DIGEST, ID)


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("is_listed", [False, True])
def test_a_preloaded_image_stays_open_when_an_abandoned_pull_gives_it_another_name(
    tmp_path: Path, *, restarted: bool, is_listed: bool
) -> None:
    records = made(tmp_path)
    if is_listed:
        records.load_finished_pulls([(ID, [PRELOADED])])
    records.abandoned(records.begin(OTHER))
    if restarted:
        records = made(tmp_path)
        assert records.open_to_all(PRELOADED, ID)
        records.load_finished_pulls([(ID, [PRELOADED, OTHER])])
    records.prune([(ID, [PRELOADED, OTHER])])
    records._intents._monotonic = lambda: float("inf")
    records.prune([(ID, [PRELOADED, OTHER])])
    assert records.open_to_all(PRELOADED, ID) and not list((tmp_path / "pulled").iterdir())


def test_an_image_that_is_loaded_while_another_name_of_it_is_pulled_stays_open(tmp_path: Path) -> None:
    records = made(tmp_path)
    pull = records.begin(OTHER)
    records.pulled(pull, OTHER, ID, by_secret("evil"), [PRELOADED, OTHER], names_are_exact=True)
    assert records.open_to_all(PRELOADED, ID) and not records.open_to_all(OTHER, ID)


@pytest.mark.parametrize(("error", "is_open"), [(UNRESOLVED, True), (CUT, False)])
async def test_an_image_that_is_loaded_while_a_pull_of_it_cannot_reach_the_registry_is_open(
    tmp_path: Path, error: CRIError, *, is_open: bool
) -> None:
    records = made(tmp_path)
    with pytest.raises(CRIError):
        await pulls_of(Pulls(error, ID), records).get(IMAGE, [by_secret("a")], cast(Any, None))
    assert records.open_to_all(IMAGE, ID) is is_open
    assert bool(list((tmp_path / "pulling").iterdir())) is not is_open


def test_pulls_that_begin_after_a_list_with_a_loaded_image_do_not_close_it(tmp_path: Path) -> None:
    """Somebody keeps pulls of its name under way, one after another."""
    records = made(tmp_path)
    pull = records.begin(IMAGE)
    records.prune([(ID, [IMAGE])])
    for _ in range(3):
        following = records.begin(IMAGE, ID)
        records.failed(pull)
        pull = following
        assert records.open_to_all(IMAGE, ID)
    records.abandoned(pull)
    records.prune([(ID, [IMAGE])])
    assert records.open_to_all(IMAGE, ID)


@pytest.mark.parametrize("first", [UnavailableError("away", code="UNAVAILABLE"), CUT])
@pytest.mark.parametrize("last", [UNRESOLVED, None])
async def test_no_try_of_a_pull_is_forgotten_that_may_have_brought_an_image(
    tmp_path: Path, first: CRIError, last: CRIError | None
) -> None:
    """The first credential's try is still under way, or has brought what the tag meant then."""
    errors: list[CRIError | None] = [first, last]

    class Runtime(Pulls):
        async def pull_image(self, *_: Any, **__: Any) -> str:
            self.has_pulled = True
            if (error := errors.pop(0)) is not None:
                raise error
            return "sha256:new"

        async def image_status(self, name: str) -> Image | None:
            return None if last or not self.has_pulled else Image(id="sha256:new", repo_tags=[IMAGE])

    records = made(tmp_path)
    pull = pulls_of(Runtime(None, None), records).get(IMAGE, [by_secret("a"), by_secret("b")], cast(Any, None))
    await asyncio.gather(pull, return_exceptions=True)
    may_come = first is not CUT or last is None
    assert records.open_to_all(DIGEST, ID) is not may_come


async def test_the_image_that_a_pull_returned_is_recorded_although_its_tag_has_moved_meanwhile(tmp_path: Path) -> None:
    class Runtime(Pulls):
        async def pull_image(self, *_: Any, **__: Any) -> str:
            self.has_pulled = True
            return ID

        async def image_status(self, name: str) -> Image | None:
            if not self.has_pulled:
                return None
            return Image(id=ID, repo_digests=[DIGEST]) if name == ID else Image(id="sha256:new", repo_tags=[name])

    records = made(tmp_path)
    await pulls_of(Runtime(None, None), records).get(IMAGE, [by_secret("a")], cast(Any, None))
    assert not records.open_to_all(DIGEST, ID) and records.allows(DIGEST, ID, [by_secret("a")])


@pytest.mark.parametrize("digits", [1, 2, 12, 64])
def test_an_image_of_an_abandoned_pull_is_closed_by_its_id(tmp_path: Path, digits: int) -> None:
    """containerd takes the first digits for an ID."""
    records, image_ref = made(tmp_path), f"sha256:{'d' * 64}"
    records.load_finished_pulls([(ID, [PRELOADED])])
    records.abandoned(records.begin(IMAGE))
    assert not records.open_to_all(f"sha256:{'d' * digits}", image_ref)
    assert records.open_to_all("sha256:a", ID)


async def test_no_request_for_access_waits_for_a_slow_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records, syncing, synced = made(tmp_path), threading.Event(), threading.Event()
    first = records.begin(OTHER)

    def slow(_: int) -> None:
        syncing.set()
        assert synced.wait(20)

    monkeypatch.setattr(os, "fsync", slow)
    writing = asyncio.create_task(asyncio.to_thread(records.begin, IMAGE))
    try:
        assert await asyncio.to_thread(syncing.wait, 10)
        asked = asyncio.to_thread(lambda: (records.open_to_all(IMAGE, ID), ImageAccess.failed(records, first)))
        assert (await asyncio.wait_for(asked, 5))[0] is False
        asked = asyncio.to_thread(lambda: (False, ImageAccess.abandoned(records, first)))
        await asyncio.wait_for(asked, 5)
    finally:
        synced.set()
        await writing


def test_an_intent_of_an_earlier_version_keeps_the_image_that_its_name_had_before(tmp_path: Path) -> None:
    made(tmp_path)
    intent = {"kind": "ImagePullIntent", "apiVersion": "kubelet.config.k8s.io/v1beta1", "image": IMAGE}
    file = tmp_path / "pulling" / file_name(IMAGE)
    file.write_text(json.dumps({**intent, "preloadedImageRef": ID}))
    records = made(tmp_path)
    assert records.open_to_all(IMAGE, ID) and not records.open_to_all(IMAGE, "sha256:new")
    records.load_finished_pulls([(ID, [DIGEST]), ("sha256:new", [IMAGE])])
    assert records.open_to_all(DIGEST, ID) and not records.open_to_all(IMAGE, "sha256:new")


def test_a_pull_that_adds_a_name_to_an_undecided_image_does_not_open_it(tmp_path: Path) -> None:
    records = made(tmp_path)
    first = records.begin(IMAGE)
    records.prune([(ID, [IMAGE, DIGEST])])
    second = records.begin(OTHER)
    assert not records.open_to_all(OTHER, ID), "the second pull may have added its name by now"
    records.abandoned(first)
    records.prune([(ID, [IMAGE, DIGEST, OTHER])])
    assert not records.open_to_all(OTHER, ID) and not records.open_to_all(IMAGE, ID)
    records.abandoned(second)
    records._intents._monotonic = lambda: float("inf")
    records.prune([(ID, [IMAGE, DIGEST, OTHER])])
    records.prune([(ID, [IMAGE, DIGEST, OTHER])])
    assert not records.open_to_all(OTHER, ID) and not records.open_to_all(IMAGE, ID)


@pytest.mark.parametrize("error", [None, CUT])
async def test_a_private_image_that_is_collected_as_its_next_pull_begins_stays_closed(
    tmp_path: Path, error: CRIError | None
) -> None:
    """A list drops its record between the inspection of the name and the intent; then the pull brings it again."""
    records = made(tmp_path)
    records.pulled(records.begin(IMAGE), IMAGE, ID, by_secret("owner"), [IMAGE, DIGEST], names_are_exact=True)

    class Runtime(Pulls):
        async def image_status(self, name: str) -> Image | None:
            if not self.has_pulled:
                records.prune([])
            return Image(id=ID, repo_tags=[IMAGE], repo_digests=[DIGEST])

    pull = pulls_of(Runtime(error, None), records).get(IMAGE, [by_secret("owner")], cast(Any, None))
    await asyncio.gather(pull, return_exceptions=True)
    for again in (records, made(tmp_path)):
        assert not any(again.open_to_all(name, ID) for name in (IMAGE, DIGEST, ID))
        again.load_finished_pulls([(ID, [IMAGE, DIGEST])])
        assert not any(again.open_to_all(name, ID) for name in (IMAGE, DIGEST, ID))


async def test_a_failed_pull_that_brought_a_collected_image_again_is_not_forgotten(tmp_path: Path) -> None:
    """Its record was there when the pull began, and is removed while the pull runs."""
    records = made(tmp_path)
    records.pulled(records.begin(IMAGE), IMAGE, ID, by_secret("owner"), [IMAGE, DIGEST], names_are_exact=True)

    class Runtime(Pulls):
        async def pull_image(self, *_: Any, **__: Any) -> str:
            records.prune([])
            return await super().pull_image()

    with pytest.raises(CRIError):
        await pulls_of(Runtime(CUT, ID, ID), records).get(IMAGE, [by_secret("owner")], cast(Any, None))
    records.load_finished_pulls([(ID, [IMAGE, DIGEST])])
    assert not any(records.open_to_all(name, ID) for name in (IMAGE, DIGEST, ID))


def test_a_preloaded_image_stays_open_that_is_pulled_as_the_record_of_another_is_removed(tmp_path: Path) -> None:
    records = made(tmp_path)
    records.pulled(records.begin(OTHER), OTHER, "sha256:other", by_secret("evil"), [OTHER], names_are_exact=True)
    records.prune([("sha256:other", [OTHER]), (ID, [IMAGE])])
    as_of = records.removals
    records.prune([(ID, [IMAGE])])
    records.pulled(records.begin(IMAGE, ID, as_of), IMAGE, ID, by_secret("evil"), [IMAGE], names_are_exact=True)
    assert records.open_to_all(IMAGE, ID)
