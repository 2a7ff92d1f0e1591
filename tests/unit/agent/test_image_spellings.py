"""Access to images that a runtime lists under another spelling of their names than pods use."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent.images import pull_intents
from agent.images.image_access import ImageAccess
from agent.images.names import with_registry
from agent.images.pull_record_files import file_name
from agent.images.recorded_pulls import RecordedPulls
from cri.client import Client
from cri.containerd_service import ImageName
from cri.errors import UnimplementedError
from cri.messages import Image
from tests.support.clock import FakeClock
from tests.support.image_records import ID, Pulls, by_secret, made

LISTED = ["docker.io/library/app:1", "docker.io/library/app@sha256:00"]
SPELLINGS = ["app:1", "library/app:1", "docker.io/app:1", "index.docker.io/app:1", "index.docker.io/library/app:1"]
USED = [*SPELLINGS, "docker.io/library/app:1", "app", "app@sha256:00", "index.docker.io/app:1@sha256:00"]
SPELLED = pytest.mark.parametrize("name", SPELLINGS)


def is_closed(records: ImageAccess, *, to_others: bool = True) -> None:
    """Require that the image is open under no spelling; `to_others` leaves out the namespace whose secret pulled it."""
    for used in USED:
        assert not records.open_to_all(used, ID) and not records.allows(used, ID, [])
        assert records.allows(used, ID, [by_secret("a")]) is to_others


@SPELLED
@pytest.mark.parametrize("restarted", [False, True])
def test_a_pulled_image_requires_credentials_under_every_spelling(
    tmp_path: Path, name: str, *, restarted: bool
) -> None:
    records = made(tmp_path)
    records.begin(name)
    records.got(name, ID, by_secret("a"), LISTED)
    is_closed(made(tmp_path) if restarted else records)


@SPELLED
def test_a_pull_during_which_the_agent_restarts_leaves_a_record_for_every_spelling(tmp_path: Path, name: str) -> None:
    made(tmp_path).begin(name)
    records = made(tmp_path)
    assert not any(records.open_to_all(spelled, ID) for spelled in SPELLINGS), "the images are not listed yet"
    records.load_finished_pulls([(ID, LISTED)])
    is_closed(records, to_others=False)
    records._intents._monotonic = lambda: float("inf")
    records.prune([(ID, LISTED)])
    is_closed(records, to_others=False)
    assert not list((tmp_path / "pulling").iterdir())
    is_closed(made(tmp_path), to_others=False)


@SPELLED
def test_an_intent_of_an_earlier_version_has_the_pods_spelling(tmp_path: Path, name: str) -> None:
    made(tmp_path)
    for spelled in (name, "docker.io/library/app:1"):
        intent = {"kind": "ImagePullIntent", "apiVersion": "kubelet.config.k8s.io/v1beta1", "image": spelled}
        (tmp_path / "pulling" / file_name(spelled)).write_text(json.dumps(intent))
    records = made(tmp_path)
    assert not any(records.open_to_all(spelled, ID) for spelled in SPELLINGS)
    records.load_finished_pulls([(ID, LISTED)])
    is_closed(records, to_others=False)
    records._intents._monotonic = lambda: float("inf")
    records.prune([(ID, LISTED)])
    is_closed(records, to_others=False)
    assert not list((tmp_path / "pulling").iterdir())


@SPELLED
@pytest.mark.parametrize("used", USED)
def test_an_abandoned_pull_closes_the_image_under_every_spelling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, used: str
) -> None:
    records = made(tmp_path)
    records.begin(name)
    records.abandoned(name)
    assert not records.open_to_all(used, ID)
    monkeypatch.setattr(pull_intents, "ABANDONED_SECONDS", 0.0)
    records.prune([(ID, LISTED)])
    assert not records.open_to_all(used, ID) and not list((tmp_path / "pulling").iterdir())


@SPELLED
def test_a_damaged_intent_closes_the_image_for_its_spelling_until_it_is_pulled(tmp_path: Path, name: str) -> None:
    made(tmp_path)
    (tmp_path / "pulling" / file_name(name)).write_bytes(b"")
    records = made(tmp_path)
    assert not records.open_to_all(name, ID)
    records.begin(name)
    records.got(name, ID, by_secret("a"), LISTED)
    is_closed(records)
    records._intents._monotonic = lambda: float("inf")
    records.prune([(ID, LISTED)])
    assert not list((tmp_path / "pulling").iterdir())


@SPELLED
@pytest.mark.parametrize("used", USED)
def test_a_preloaded_image_stays_open_under_every_spelling(tmp_path: Path, name: str, used: str) -> None:
    records = made(tmp_path)
    records.load_finished_pulls([(ID, LISTED)])
    records.begin(name, ID)
    records.got(name, ID, by_secret("a"), LISTED)
    assert records.open_to_all(used, ID) and made(tmp_path).open_to_all(used, ID)


def test_a_record_of_an_earlier_version_has_the_pods_spelling(tmp_path: Path) -> None:
    records = made(tmp_path)
    records.begin("app:1")
    records.got("app:1", ID, by_secret("a"))
    (file,) = (tmp_path / "pulled").iterdir()
    file.write_text(file.read_text().replace("docker.io/library/app", "app"))
    assert made(tmp_path).allows("app:1", ID, [by_secret("a")]) and not made(tmp_path).open_to_all("app:1", ID)


@pytest.mark.parametrize("name", ["index.docker.io/team/app", "docker.io/app"])
@pytest.mark.parametrize("needs_secret", [False, True])
def test_a_record_that_opened_the_listed_name_by_mistake_is_corrected(
    tmp_path: Path, name: str, *, needs_secret: bool
) -> None:
    listed = with_registry(name)
    records = made(tmp_path)
    records.begin(f"{name}:1")
    records.got(f"{name}:1", ID, by_secret("a") if needs_secret else None)
    (file,) = (tmp_path / "pulled").iterdir()
    note = json.loads(file.read_text())
    who = note["credentialMapping"].pop(listed)
    note["credentialMapping"] = {
        listed: {"nodePodsAccessible": True},
        name: who,
        "r.test/old": {"nodePodsAccessible": True},
    }
    file.write_text(json.dumps(note))
    again = made(tmp_path)
    for used in (f"{name}:1", f"{listed}:1"):
        assert again.open_to_all(used, ID) is not needs_secret
        assert again.allows(used, ID, [by_secret("a")]) is needs_secret
    assert again.open_to_all("r.test/old:1", ID)


def test_names_that_the_agent_would_not_expect_of_a_pull_do_not_open_the_image(tmp_path: Path) -> None:
    """A runtime may complete names by rules of its own (short names of CRI-O)."""
    records = made(tmp_path)
    records.load_finished_pulls([("sha256:other", ["r.test/other:1"])])
    records.begin("app:1")
    records.prune([(ID, ["mirror.test/app:1"])])  # it is listed between its pull and its record
    records.got("app:1", ID, by_secret("a"), ["mirror.test/app:1"])
    assert not records.open_to_all("mirror.test/app:1", ID) and records.allows("app:1", ID, [by_secret("a")])


@pytest.mark.parametrize(
    ("created", "is_open"), [(-1.0, True), (1.0, True), (None, False), (UnimplementedError("", code=""), False)]
)
async def test_an_image_that_was_imported_before_or_during_a_pull_stays_open_under_its_names(
    tmp_path: Path, created: float | UnimplementedError | None, *, is_open: bool
) -> None:
    clock, records = FakeClock(), made(tmp_path)
    pull_begins = clock.now().timestamp()

    class Runtime(Pulls):
        async def pull_image(self, *_: Any, **__: Any) -> str:
            await clock.advance(0.5)
            return await super().pull_image()

        async def image_status(self, name: str) -> Image | None:
            return Image(id=ID, repo_tags=["r.test/preloaded:1", "evil.test/same:1"]) if self.has_pulled else None

        async def image_name(self, name: str) -> ImageName | None:
            if isinstance(created, UnimplementedError):
                raise created
            return ImageName(name, "", pull_begins + created, pinned=False) if created is not None else None

    runtime, unused = Runtime(None, None), cast(Any, None)
    client = cast(Client, SimpleNamespace(images=runtime, containerd=runtime))
    await RecordedPulls(client, records).get("evil.test/same:1", [by_secret("evil")], unused)
    assert records.open_to_all("r.test/preloaded:1", ID) is is_open
    assert not records.open_to_all("evil.test/same:1", ID)
