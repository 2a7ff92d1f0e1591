"""Access to images on the node, and its records."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent.images import pull_intents, pull_record_files
from agent.images.garbage_collection import ImageGC
from agent.images.image_access import ImageAccess
from agent.images.manager import ImageError, Images
from agent.images.names import with_registry
from agent.images.registry_auth import ACCOUNT, NODE, SECRET, Credential, Source
from cri.client import Client
from cri.errors import CRIError, UnavailableError
from cri.messages import Image
from kube.api import core_v1
from kube.events import EventRecorder
from tests.support.clock import FakeClock

ID, IMAGE = "sha256:abc", "r.test/app:1"
NOW = "2026-01-02T03:04:05Z"


def made(folder: Path, policy: str = "NeverVerifyPreloadedImages", *allowed: str) -> ImageAccess:
    records = ImageAccess(folder, lambda: NOW, policy, allowed)
    records.load()
    return records


def by_secret(name: str, password: str = "p") -> Credential:
    return Credential("r.test", "u", password, source=Source(SECRET, f"uid-{name}", "ns", name))


def by_account(name: str) -> Credential:
    return Credential("r.test", "u", "p", source=Source(ACCOUNT, f"uid-{name}", "ns", name))


def pull(records: ImageAccess, credential: Credential | None, image: str = IMAGE) -> None:
    records.begin(image)
    records.pulled(image, ID, credential)


@pytest.mark.parametrize(
    ("policy", "allowed", "preloaded", "pulled"),
    [
        ("NeverVerify", (), True, True),
        ("NeverVerifyPreloadedImages", (), True, False),
        ("NeverVerifyAllowlistedImages", (), False, False),
        ("NeverVerifyAllowlistedImages", ("r.test/app",), True, False),
        ("NeverVerifyAllowlistedImages", ("r.test/*",), True, False),
        ("NeverVerifyAllowlistedImages", ("r.test/ap",), False, False),
        ("AlwaysVerify", (), False, False),
    ],
)
def test_credential_policies_decide_when_pull_records_are_checked(
    tmp_path: Path, policy: str, allowed: tuple[str, ...], preloaded: bool, pulled: bool
) -> None:
    records = made(tmp_path, policy, *allowed)
    assert records.open_to_all(IMAGE, ID) is preloaded
    pull(records, by_secret("a"))
    assert records.open_to_all(IMAGE, ID) is pulled


@pytest.mark.parametrize("credential", [None, Credential("r.test", "u", "p", source=Source(NODE))])
def test_what_needs_nothing_of_the_pods_is_for_everybody(tmp_path: Path, credential: Credential | None) -> None:
    records = made(tmp_path)
    pull(records, by_secret("a"))
    pull(records, credential)
    assert records.open_to_all(IMAGE, ID)


def test_the_same_secret_or_the_same_password_will_do(tmp_path: Path) -> None:
    records = made(tmp_path)
    pull(records, by_secret("a"))
    assert records.allows(IMAGE, ID, [by_secret("a")])
    assert records.allows(IMAGE, ID, [by_secret("copy")])
    assert records.allows(IMAGE, ID, [by_secret("a", "changed")])
    assert records.allows(IMAGE, ID, [by_secret("another copy", "changed")])
    assert not records.allows(IMAGE, ID, [by_secret("b", "other")])
    assert not records.allows(IMAGE, ID, [])
    assert not records.allows("r.test/elsewhere:1", ID, [by_secret("a")])


def test_records_of_many_secrets_accounts_and_names_stay_small(tmp_path: Path) -> None:
    """Copies of a secret in many namespaces match the record of the first; every one that was added was written again."""
    records, most = made(tmp_path), pull_record_files.MOST
    pull(records, by_secret("a"))
    (file,) = (tmp_path / "pulled").iterdir()
    for number in range(2 * most):
        assert records.allows(IMAGE, ID, [by_secret(f"copy-{number}")])
        assert records.allows(IMAGE, ID, [by_secret("a", f"changed-{number}"), by_secret("a")])
    (mapping,) = json.loads(file.read_text())["credentialMapping"].values()
    assert len(mapping["kubernetesSecrets"]) == most
    for number in range(most + 1):
        pull(records, by_secret(f"pulled-{number}", f"p-{number}"))
        pull(records, by_account(f"pulled-{number}"))
    (mapping,) = json.loads(file.read_text())["credentialMapping"].values()
    assert len(mapping["kubernetesSecrets"]) == len(mapping["kubernetesServiceAccounts"]) == most
    assert not records.allows(IMAGE, ID, [by_account("pulled-0")]) and records.allows(
        IMAGE, ID, [by_account("pulled-1")]
    )
    names = [f"r.test/app-{number}" for number in range(pull_record_files.MOST_NAMES + 1)]
    for name in names:
        pull(records, by_secret("a"), name)
    assert len(json.loads(file.read_text())["credentialMapping"]) == pull_record_files.MOST_NAMES
    assert records.allows(names[0], ID, [by_secret("a")])
    assert not records.allows(names[-1], ID, [by_secret("a")]) and not records.open_to_all(names[-1], ID)


def test_an_account_is_known_by_its_coordinates(tmp_path: Path) -> None:
    records = made(tmp_path)
    pull(records, by_account("a"))
    assert records.allows(IMAGE, ID, [by_account("a")])
    assert not records.allows(IMAGE, ID, [by_account("b")])


def test_notes_outlive_the_agent_and_hold_no_password(tmp_path: Path) -> None:
    pull(made(tmp_path), by_secret("a", "hush"))
    (file,) = (tmp_path / "pulled").iterdir()
    note = json.loads(file.read_text())
    assert (note["kind"], note["apiVersion"]) == ("ImagePulledRecord", "kubelet.config.k8s.io/v1beta1")
    assert list(note["credentialMapping"]) == ["r.test/app"] and "hush" not in file.read_text()
    assert list((tmp_path / "pulling").iterdir()) == []
    again = made(tmp_path)
    assert not again.open_to_all(IMAGE, ID) and again.allows(IMAGE, ID, [by_secret("a", "hush")])


def test_an_image_pulled_across_an_agent_restart_requires_credentials(tmp_path: Path) -> None:
    made(tmp_path).begin(IMAGE)
    again = made(tmp_path)
    assert not again.open_to_all(IMAGE, ID)
    again.load_finished_pulls([(ID, [IMAGE])])
    assert not again.open_to_all(IMAGE, ID) and not again.allows(IMAGE, ID, [by_secret("a")])
    assert list((tmp_path / "pulling").iterdir()) == []


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
    for credential in (by_secret("evil"), None):
        records.begin("evil.test/same:1")
        records.pulled("evil.test/same:1", ID, credential, [with_registry(name)])
    if restarted:
        records = made(tmp_path)
    assert records.open_to_all(name, ID)
    assert not records.open_to_all("other.test/same:1", ID)
    pull(records, by_secret("a"), "private.test/app:1")
    records.pulled("private.test/app:1", ID, by_secret("a"), ["private.test/app:1"])
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
    records.begin(own)
    records.begin("r.test/other:1")
    is_open = is_open or (name.endswith("app:1") and own == "app@sha256:00")  # a pull by digest brings no tag
    records.pulled(own, ID, by_secret("a"), [name])
    assert records.open_to_all(name, ID) is is_open
    assert records.allows(own, ID, [by_secret("a")])
    records.pulled("r.test/other:1", ID, by_secret("b"), [name])
    assert records.open_to_all(name, ID) is is_open


def test_a_preloaded_image_stays_open_that_is_pulled_again_under_its_name(tmp_path: Path) -> None:
    records = made(tmp_path)
    records.begin(IMAGE, ID)
    records.pulled(IMAGE, ID, by_secret("a"), [IMAGE, "r.test/app@sha256:00"])
    assert records.open_to_all(IMAGE, ID)
    records.begin("r.test/new:1", ID)
    records.pulled("r.test/new:1", "sha256:newer", by_secret("a"), ["r.test/new:1", "r.test/new@sha256:00"])
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


DAMAGE = (b"", b'{"imageRef":', b"[]", b'{"imageRef":"sha256:abc"}', b"[" * 100_000)


@pytest.mark.parametrize("damage", DAMAGE)
def test_an_image_with_a_damaged_pull_record_requires_credentials(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: bytes
) -> None:
    pull(made(tmp_path), by_secret("a"))
    (file,) = (tmp_path / "pulled").iterdir()
    file.write_bytes(damage)
    again = made(tmp_path)
    assert str(file) in caplog.text
    assert not again.open_to_all(IMAGE, ID) and not again.allows(IMAGE, ID, [by_secret("a")])
    assert again.open_to_all("r.test/other:1", "sha256:other")
    pull(again, by_secret("b", "other"))
    assert again.allows(IMAGE, ID, [by_secret("b", "other")]) and not again.allows(IMAGE, ID, [by_secret("a")])


def test_the_damaged_note_of_an_image_that_is_gone_is_removed(tmp_path: Path) -> None:
    pull(made(tmp_path), by_secret("a"))
    (file,) = (tmp_path / "pulled").iterdir()
    file.write_bytes(b"")
    again = made(tmp_path)
    again.prune([(ID, [IMAGE])])
    assert file.exists()
    again.prune([])
    assert not file.exists()


def test_what_upstream_has_not_finished_is_not_read_and_an_older_version_is_written_anew(tmp_path: Path) -> None:
    pull(made(tmp_path), by_secret("a"))
    (file,) = (tmp_path / "pulled").iterdir()
    file.write_text(file.read_text().replace("v1beta1", "v1alpha1"))
    (tmp_path / "pulled" / f"{file.name}.tmp").write_text(file.read_text().replace("uid-a", "uid-b"))
    again = made(tmp_path)
    assert again.allows(IMAGE, ID, [by_secret("a")])
    pull(again, by_secret("c"))
    assert json.loads(file.read_text())["apiVersion"] == "kubelet.config.k8s.io/v1beta1"


def test_images_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    records = made(tmp_path)
    pull(records, by_secret("a"))
    records.prune([(ID, [IMAGE])])
    assert not records.open_to_all(IMAGE, ID)
    records.prune([])
    assert records.open_to_all(IMAGE, ID) and list((tmp_path / "pulled").iterdir()) == []


async def test_a_pull_that_ends_while_images_are_listed_keeps_its_note(tmp_path: Path) -> None:
    records, present = made(tmp_path), list[Image]()

    class Runtime:
        async def list_images(self) -> list[Image]:
            return list(present)

        async def list_containers(self) -> list[object]:
            if not present:  # the pull ends when the images were listed and the containers are not yet
                present.append(Image(id=ID, repo_tags=[IMAGE]))
                await asyncio.to_thread(pull, records, by_secret("a"))
            return []

        async def image_fs_info(self) -> list[object]:
            return []

        async def status(self, *, verbose: bool) -> object:
            return SimpleNamespace(info={})

    runtime = SimpleNamespace(images=Runtime(), runtime=Runtime())
    collector = ImageGC(cast(Client, runtime), FakeClock(), high=85, low=80, minimum_age=0, seen=records.prune)
    for _ in range(2):
        await collector.collect()
        assert not records.open_to_all(IMAGE, ID)
        assert records.allows(IMAGE, ID, [by_secret("a")])
    gone = SimpleNamespace(list_images=_none, list_containers=_none, image_fs_info=_none, status=runtime.runtime.status)
    collector = ImageGC(
        cast(Client, SimpleNamespace(images=gone, runtime=gone)),
        FakeClock(),
        high=85,
        low=80,
        minimum_age=0,
        seen=records.prune,
    )
    await collector.collect()
    assert records.open_to_all(IMAGE, ID), "it is gone, and so is its note"


def test_a_pull_that_changes_nothing_in_a_note_keeps_it_too(tmp_path: Path) -> None:
    records = made(tmp_path)
    pull(records, by_secret("a"))
    listed_at = time.monotonic()
    pull(records, by_secret("a"))
    records.prune([], listed_at)
    assert not records.open_to_all(IMAGE, ID)


async def _none() -> list[object]:
    return []


class Pulls:
    """A runtime that pulls or fails; `present` is the ID that it then has of the image. Pulls list no images."""

    def __init__(self, pull: CRIError | None, present: str | CRIError | None) -> None:
        self.pull, self.present = pull, present

    async def pull_image(self, *_: Any, **__: Any) -> None:
        if self.pull is not None:
            raise self.pull

    async def image_status(self, name: str) -> Image | None:
        if isinstance(self.present, CRIError):
            raise self.present
        return Image(id=self.present) if self.present else None


AWAY, REFUSED = UnavailableError("away", code="UNAVAILABLE"), CRIError("denied", code="UNKNOWN")


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
    runtime = cast(Client, SimpleNamespace(images=Pulls(pull, present)))
    unused = cast(Any, None)
    images = Images(runtime, unused, keyring=unused, access=records, metrics=unused, startup=unused)
    with pytest.raises(CRIError):
        await images._get(IMAGE, [by_secret("a")], unused, before)
    assert records.open_to_all(IMAGE, ID) == is_open


async def test_the_intent_of_a_pull_ends_whose_pod_goes_while_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records, began, written = made(tmp_path), threading.Event(), threading.Event()
    begin = records.begin

    def slow(image: str, before: str = "") -> None:
        began.set()
        assert written.wait(10)
        begin(image, before)

    monkeypatch.setattr(records, "begin", slow)
    runtime, unused = cast(Client, SimpleNamespace(images=Pulls(None, None))), cast(Any, None)
    images = Images(runtime, unused, keyring=unused, access=records, metrics=unused, startup=unused)
    pulls = asyncio.create_task(images._get(IMAGE, [], unused))
    assert await asyncio.to_thread(began.wait, 10)
    pulls.cancel()
    await asyncio.gather(pulls, return_exceptions=True)
    written.set()
    for _ in range(1000):
        if not asyncio.all_tasks() - {asyncio.current_task()}:
            break
        await asyncio.sleep(0.01)
    assert not list((tmp_path / "pulling").iterdir()) and records.open_to_all(IMAGE, ID)


def test_the_intent_of_a_pull_ends_whose_record_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records, now = made(tmp_path), [0.0]
    records._intents._monotonic = lambda: now[0]

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    records.begin(IMAGE)
    with monkeypatch.context() as patched:
        patched.setattr("agent.images.image_access.write_file", full)
        with pytest.raises(OSError, match="No space left"):
            records.pulled(IMAGE, ID, by_secret("a"))
        assert not records.open_to_all(IMAGE, ID)
        now[0] = pull_intents.ABANDONED_SECONDS
        records.prune([(ID, [IMAGE])])  # images are collected all the same
        records.load_finished_pulls([(ID, [IMAGE])])  # and the agent starts
    assert not records.open_to_all(IMAGE, ID)
    records.prune([(ID, [IMAGE])])
    assert not list((tmp_path / "pulling").iterdir()) and not records.open_to_all(IMAGE, ID)


@pytest.mark.parametrize("policy", ["Always", "IfNotPresent", "Never", None])
@pytest.mark.parametrize("present", [True, False])
async def test_an_image_that_is_made_on_the_node_is_never_pulled(
    tmp_path: Path, policy: str | None, present: bool
) -> None:
    """A mirror of all registries could have another one of its name, which would be the sandbox of all pods."""
    pulls = Pulls(None, ID if present else None)
    recorder = cast(EventRecorder, SimpleNamespace(event=lambda *_, **__: None))
    runtime, unused = cast(Client, SimpleNamespace(images=pulls)), cast(Any, None)
    access = made(tmp_path)
    images = Images(runtime, recorder, keyring=unused, access=access, metrics=unused, startup=unused)
    container = core_v1.Container(name="c", image="wherry.local/pause:2", image_pull_policy=policy)
    pod = core_v1.Pod()
    if present:
        assert (await images.ensure(pod, container, "", (), unused)).id == ID
        return
    with pytest.raises(ImageError) as refused:
        await images.ensure(pod, container, "", (), unused)
    assert refused.value.reason == "ErrImageNeverPull"
