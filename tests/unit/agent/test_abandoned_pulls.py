"""Pulls that are abandoned: their intents, and the access to images that they may have brought."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent.images import pull_intents
from agent.images.names import with_registry
from agent.images.open_pulls import Pull
from agent.images.recorded_pulls import RecordedPulls
from cri.client import Client
from cri.errors import CRIError, UnavailableError
from tests.support.image_records import ID, IMAGE, Pulls, by_secret, made, pull

AWAY, REFUSED = UnavailableError("away", code="UNAVAILABLE"), CRIError("denied", code="UNKNOWN")


def test_an_image_pulled_across_an_agent_restart_requires_credentials(tmp_path: Path) -> None:
    made(tmp_path).begin(IMAGE)
    again = made(tmp_path)
    assert not again.open_to_all(IMAGE, ID)
    again.load_finished_pulls([(ID, [IMAGE])])
    assert not again.open_to_all(IMAGE, ID) and not again.allows(IMAGE, ID, [by_secret("a")])
    again.load_finished_pulls([("sha256:later", [IMAGE]), (ID, ["r.test/app@sha256:00"])])
    assert not again.open_to_all(IMAGE, "sha256:later"), "the runtime may finish a pull after the agent's start"
    again._intents._monotonic = lambda: float("inf")
    again.prune([("sha256:later", [IMAGE])])
    assert list((tmp_path / "pulling").iterdir()) == [] and not again.open_to_all(IMAGE, "sha256:later")


def test_a_pull_that_came_to_nothing_leaves_nothing(tmp_path: Path) -> None:
    records = made(tmp_path)
    records.begin(IMAGE)
    records.begin(IMAGE)
    records.failed(IMAGE)
    assert not records.open_to_all(IMAGE, ID)
    records.failed(IMAGE)
    assert records.open_to_all(IMAGE, ID) and list((tmp_path / "pulling").iterdir()) == []


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize(("after", "is_open"), [(ID, True), ("sha256:new", False)])
def test_an_abandoned_pull_of_a_preloaded_image_takes_it_from_nobody(
    tmp_path: Path, after: str, *, is_open: bool, restarted: bool
) -> None:
    """Anybody can begin a pull with policy Always and delete the pod; only an image that came by it needs credentials."""
    records = made(tmp_path)
    records.begin(IMAGE, ID)
    assert records.open_to_all(IMAGE, after) is is_open
    if restarted:
        records = made(tmp_path)
        records.load_finished_pulls([(after, [IMAGE])])
    else:
        records.abandoned(IMAGE)
    assert records.open_to_all(IMAGE, after) is is_open
    records.begin(IMAGE, after)
    records.abandoned(IMAGE)
    assert records.open_to_all(IMAGE, after) is is_open, (
        "the second attempt does not make a pulled image a preloaded one"
    )


@pytest.mark.parametrize("name", ["registry.test/addon:1", "addon:1", "team/addon@sha256:00"])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_preloaded_image_stays_open_under_its_names_when_it_is_pulled_under_another(
    tmp_path: Path, name: str, *, restarted: bool
) -> None:
    records = made(tmp_path)
    records.load_finished_pulls([(ID, [with_registry(name)])])
    for credential in (by_secret("evil"), None):
        records.begin("evil.test/same:1")
        records.got("evil.test/same:1", ID, credential, [with_registry(name)])
    if restarted:
        records = made(tmp_path)
    assert records.open_to_all(name, ID)
    assert not records.open_to_all("other.test/same:1", ID)
    pull(records, by_secret("a"), "private.test/app:1")
    records.begin("private.test/app:1")
    records.got("private.test/app:1", ID, by_secret("a"), ["private.test/app:1"])
    assert not records.open_to_all("private.test/app:1", ID), "it has a record: it is no preloaded image any more"


@pytest.mark.parametrize("own", ["app:1", "app@sha256:00", "app:1@sha256:00"])
@pytest.mark.parametrize(
    ("name", "is_open"),
    [
        ("docker.io/library/old:1", True),
        ("docker.io/library/app:0", True),  # the image had this name of the repository before
        ("docker.io/library/app:1", False),
        ("docker.io/library/app@sha256:00", False),
        ("r.test/other:1", False),
        ("r.test/other@sha256:00", False),
    ],
)
def test_only_names_that_no_pull_has_brought_stay_open(tmp_path: Path, own: str, name: str, *, is_open: bool) -> None:
    """Two pulls bring the same image, and the runtime lists the names of both when the first one ends."""
    records = made(tmp_path)
    records.load_finished_pulls([(ID, [name])])
    records.begin(own)
    records.begin("r.test/other:1")
    is_open = is_open or (name.endswith("app:1") and "@" in own)  # a pull by digest brings no tag
    records.got(own, ID, by_secret("a"), [name])
    assert records.open_to_all(name, ID) is is_open
    assert records.allows(own, ID, [by_secret("a")]) or records.open_to_all(own, ID)
    records.got("r.test/other:1", ID, by_secret("b"), [name])
    assert records.open_to_all(name, ID) is is_open


def test_a_preloaded_image_stays_open_that_is_pulled_again_under_its_name(tmp_path: Path) -> None:
    records = made(tmp_path)
    records.begin(IMAGE, ID)
    records.got(IMAGE, ID, by_secret("a"), [IMAGE, "r.test/app@sha256:00"])
    assert records.open_to_all(IMAGE, ID)
    records.begin("r.test/new:1", ID)
    records.got("r.test/new:1", "sha256:newer", by_secret("a"), ["r.test/new:1", "r.test/new@sha256:00"])
    assert not records.open_to_all("r.test/new:1", "sha256:newer")


@pytest.mark.parametrize("used", ["r.test/app:2", "r.test/app@sha256:00", "r.test/app"])
@pytest.mark.parametrize("had", [(), ("sha256:other",)])
def test_an_image_of_an_abandoned_pull_is_open_under_no_name_of_its_repository(
    tmp_path: Path, used: str, had: tuple[str, ...]
) -> None:
    records = made(tmp_path)
    records.load_finished_pulls([(image_ref, []) for image_ref in had])
    records.begin("r.test/app:1")
    records.abandoned("r.test/app:1")
    assert not records.open_to_all(used, ID)
    assert all(records.open_to_all(used, image_ref) for image_ref in had), "these were there before"
    assert records.open_to_all("r.test/another:1", ID)


def test_an_abandoned_pull_by_tag_and_digest_leaves_a_record(tmp_path: Path) -> None:
    """The runtime lists such an image without the tag."""
    made(tmp_path).begin("r.test/app:1@sha256:00")
    again = made(tmp_path)
    again.load_finished_pulls([(ID, ["r.test/app@sha256:00"])])
    assert not again.open_to_all("r.test/app@sha256:00", ID) and not again.open_to_all("r.test/app:1", ID)


def test_an_image_with_a_record_is_not_preloaded_while_it_is_pulled_again(tmp_path: Path) -> None:
    records = made(tmp_path)
    pull(records, by_secret("a"))
    records.begin(IMAGE, ID)
    assert not records.open_to_all(IMAGE, ID)
    records.prune([])
    assert not records.open_to_all(IMAGE, ID), "the record is gone, and the pull may bring the same image again"


@pytest.mark.parametrize("name", ["r.test/app:1", "app:1", "team/app:1", "localhost/app:1", "r:5000/app:1"])
@pytest.mark.parametrize("came", [False, True])
def test_intents_of_abandoned_pulls_end_and_leave_a_record_where_the_image_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, *, came: bool
) -> None:
    records = made(tmp_path)
    for number in range(3):
        records.begin(f"{name}{number}")
        records.abandoned(f"{name}{number}")
    present = [(f"{ID}{number}", [with_registry(f"{name}{number}")]) for number in range(3)] if came else []
    records.prune(present)
    assert len(list((tmp_path / "pulling").iterdir())) == 3, "the runtime may still finish them"
    monkeypatch.setattr(pull_intents, "ABANDONED_SECONDS", 0.0)
    records.prune(present)
    assert list((tmp_path / "pulling").iterdir()) == []
    assert len(list((tmp_path / "pulled").iterdir())) == len(present)
    for number in range(3):
        assert records.open_to_all(f"{name}{number}", f"{ID}{number}") is not came
        assert not records.allows(f"{name}{number}", f"{ID}{number}", [by_secret("a")])


def test_a_failed_pull_beside_an_abandoned_one_does_not_open_what_that_one_brings(tmp_path: Path) -> None:
    records = made(tmp_path)
    records.begin(IMAGE)
    records.abandoned(IMAGE)
    records.begin(IMAGE)
    records.failed(IMAGE)
    assert not records.open_to_all(IMAGE, ID)


@pytest.mark.parametrize(
    ("pull", "present", "before", "is_open"),
    [
        (None, AWAY, "", False),  # it was pulled and nobody knows what
        (None, None, "", False),
        (AWAY, None, "", False),  # it may come yet
        (REFUSED, AWAY, "", False),
        (REFUSED, ID, "", False),  # it came, and only what comes after failed
        (REFUSED, ID, "sha256:old", False),
        (REFUSED, ID, ID, True),  # it was on the node before
        (REFUSED, None, "", True),
    ],
)
async def test_an_image_is_open_to_all_only_where_a_failed_pull_surely_did_not_bring_it(
    tmp_path: Path, pull: CRIError | None, present: str | CRIError | None, before: str, is_open: bool
) -> None:
    records = made(tmp_path)
    pulls = Pulls(pull, present, before)
    runtime = cast(Client, SimpleNamespace(images=pulls, containerd=pulls))
    unused = cast(Any, None)
    pulls_of_node = RecordedPulls(runtime, records)
    with pytest.raises(CRIError):
        await pulls_of_node.get(IMAGE, [by_secret("a")], unused)
    assert records.open_to_all(IMAGE, ID) == is_open


async def test_the_intent_of_a_pull_ends_whose_pod_goes_while_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records, began, written = made(tmp_path), threading.Event(), threading.Event()
    begin = records.begin

    def slow(image: str, before: str, as_of: int, namespace: str) -> Pull:
        began.set()
        assert written.wait(10)
        return begin(image, before, as_of, namespace)

    monkeypatch.setattr(records, "begin", slow)
    pulls, unused = Pulls(None, None), cast(Any, None)
    runtime = cast(Client, SimpleNamespace(images=pulls, containerd=pulls))
    pulls_of_node = RecordedPulls(runtime, records)
    pull = asyncio.create_task(pulls_of_node.get(IMAGE, [], unused))
    assert await asyncio.to_thread(began.wait, 10)
    pull.cancel()
    await asyncio.gather(pull, return_exceptions=True)
    written.set()
    for _ in range(1000):
        if not asyncio.all_tasks() - {asyncio.current_task()}:
            break
        await asyncio.sleep(0.01)
    assert records.open_to_all(IMAGE, ID)
    records.tidy()
    assert not list((tmp_path / "pulling").iterdir())


def test_the_intent_of_a_pull_ends_whose_record_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records, now = made(tmp_path), [0.0]
    records._intents._monotonic = lambda: now[0]

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    records.begin(IMAGE)
    with monkeypatch.context() as patched:
        patched.setattr("agent.images.pull_records.write_file", full)
        with pytest.raises(OSError, match="No space left"):
            records.got(IMAGE, ID, by_secret("a"))
        assert not records.open_to_all(IMAGE, ID)
        now[0] = pull_intents.ABANDONED_SECONDS
        records.prune([(ID, [IMAGE])])  # images are collected all the same
        records.load_finished_pulls([(ID, [IMAGE])])  # and the agent starts
    assert not records.open_to_all(IMAGE, ID)
    records.prune([(ID, [IMAGE])])
    assert not list((tmp_path / "pulling").iterdir()) and not records.open_to_all(IMAGE, ID)
