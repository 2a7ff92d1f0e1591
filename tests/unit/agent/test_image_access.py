"""Access to images on the node, and its records."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent.images import pull_record_files
from agent.images.garbage_collection import ImageGC
from agent.images.manager import STATUSES, ImageError, Images
from agent.images.registry_auth import NODE, Credential, Source
from agent.metrics.kubelet_metrics import KubeletMetrics
from cri.client import Client
from cri.messages import Image
from kube.api import core_v1, meta_v1
from kube.events import EventRecorder
from tests.support.clock import FakeClock, settle
from tests.support.image_records import ID, IMAGE, Pulls, by_account, by_secret, made, pull


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


async def _none() -> list[object]:
    return []


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

    containerd = Pulls(None, None)
    runtime = SimpleNamespace(images=Runtime(), runtime=Runtime(), containerd=containerd)
    collector = ImageGC(cast(Client, runtime), FakeClock(), high=85, low=80, minimum_age=0, seen=records.prune)
    for _ in range(2):
        await collector.collect()
        assert not records.open_to_all(IMAGE, ID)
        assert records.allows(IMAGE, ID, [by_secret("a")])
    gone = SimpleNamespace(list_images=_none, list_containers=_none, image_fs_info=_none, status=runtime.runtime.status)
    collector = ImageGC(
        cast(Client, SimpleNamespace(images=gone, runtime=gone, containerd=containerd)),
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


@pytest.mark.parametrize("policy", ["Always", "IfNotPresent", "Never", None])
@pytest.mark.parametrize("present", [True, False])
async def test_an_image_that_is_made_on_the_node_is_never_pulled(
    tmp_path: Path, policy: str | None, present: bool
) -> None:
    """A mirror of all registries could have another one of its name, which would be the sandbox of all pods."""
    pulls = Pulls(None, ID if present else None, ID if present else "")
    recorder = cast(EventRecorder, SimpleNamespace(event=lambda *_, **__: None))
    runtime, unused = cast(Client, SimpleNamespace(images=pulls, containerd=pulls)), cast(Any, None)
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


def with_image(tmp_path: Path, image: Image, recorded: list[str]) -> Images:
    """Return a node's images, if each name means this image; reasons of events are recorded."""

    async def status(_: str) -> Image:
        return image

    async def pulled(*_: Any, **__: Any) -> str:
        return ID

    service = SimpleNamespace(image_status=status, pull_image=pulled)
    recorder = cast(EventRecorder, SimpleNamespace(event=lambda *given, **_: recorded.append(given[2])))
    runtime = cast(Client, SimpleNamespace(images=service, containerd=Pulls(None, None)))
    keyring = cast(Any, SimpleNamespace(find=lambda *_: nothing()))
    access, metrics, startup = made(tmp_path, "NeverVerify"), KubeletMetrics(), cast(Any, SimpleNamespace())
    startup.image_pulled = lambda *_: None
    return Images(runtime, recorder, keyring=keyring, access=access, metrics=metrics, startup=startup)


@pytest.mark.parametrize("policy", ["IfNotPresent", "Always"])
@pytest.mark.parametrize("field", ["username", "annotations"])
@pytest.mark.parametrize("size", [10_000, 20_000])
async def test_no_container_gets_an_image_that_would_keep_the_list_from_being_received(
    tmp_path: Path, policy: str, field: str, size: int
) -> None:
    image, recorded = Image(id=ID, repo_tags=["r.test/" + "n" * 20_000], size=1), list[str]()
    if field == "username":
        image.username = "u" * size
    else:
        image.spec.annotations["a"] = "x" * size
    images = with_image(tmp_path, image, recorded)
    container = core_v1.Container(name="c", image=IMAGE, image_pull_policy=policy)
    if size < 16_384:
        found = await images.ensure(core_v1.Pod(), container, "", (), cast(Any, None))
        assert len(found.user.name) <= 256
        return
    with pytest.raises(ImageError) as refused:
        await images.ensure(core_v1.Pod(), container, "", (), cast(Any, None))
    assert refused.value.reason == "ImageInspectError" and recorded[-1] == "InspectFailed"
    assert recorded.count("Pulled") == 1, "a new image of the name may be another"


@pytest.mark.parametrize("policy", ["IfNotPresent", "Always", "Never"])
@pytest.mark.parametrize("field", ["repo_tags", "repo_digests"])
@pytest.mark.parametrize("length", [20, 130, 400])
async def test_an_image_that_somebody_pulled_under_thousands_of_names_is_still_usable(
    tmp_path: Path, policy: str, field: str, length: int
) -> None:
    image, recorded = Image(id=ID, repo_tags=[IMAGE], size=1, username="u" * 10_000), list[str]()
    getattr(image, field).extend(f"r.test/{number:05}:".ljust(length, "t") for number in range(10_000))
    container = core_v1.Container(name="c", image=IMAGE, image_pull_policy=policy)
    found = await with_image(tmp_path, image, recorded).ensure(core_v1.Pod(), container, "", (), cast(Any, None))
    assert found.id == ID and recorded[-1] == "Pulled"


async def test_few_statuses_of_images_are_received_at_a_time_and_another_namespace_waits_for_few(
    tmp_path: Path,
) -> None:
    asked, in_progress, most, answer = list[str](), 0, 0, asyncio.Event()

    async def status(name: str) -> Image:
        nonlocal in_progress, most
        asked.append(name)
        in_progress += 1
        most = max(most, in_progress)
        await answer.wait()
        in_progress -= 1
        return Image(id=ID, repo_tags=[IMAGE])

    images = with_image(tmp_path, Image(), [])
    images._images = cast(Any, SimpleNamespace(image_status=status))

    async def ensure(namespace: str, image: str) -> str:
        pod = core_v1.Pod(metadata=meta_v1.ObjectMeta(namespace=namespace))
        container = core_v1.Container(name="c", image=image, image_pull_policy="Never")
        return (await images.ensure(pod, container, "", (), cast(Any, None))).id

    waiting = [asyncio.create_task(ensure("many", "r.test/many:1")) for _ in range(100)]
    await settle()
    waiting.append(asyncio.create_task(ensure("other", "r.test/other:1")))
    await settle()
    answer.set()
    assert set(await asyncio.gather(*waiting)) == {ID}
    assert most == STATUSES and asked.index("r.test/other:1") <= 2 * STATUSES


async def nothing() -> list[Credential]:
    return []
