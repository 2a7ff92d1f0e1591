"""Addresses that CNI plugins assign to pods: their owners, and flows of former owners."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import shutil
from collections.abc import AsyncIterator, Collection
from pathlib import Path
from typing import Any

import pytest

from netproxy.pod_addresses import Given, GivenAddresses
from netproxy.podnet import address_follower, pod_flows
from netproxy.podnet.address_follower import AddressFollower
from netproxy.podnet.pod_flows import PodFlows
from tests.unit.netproxy.test_pod_sources import result, until


def write(folder: Path, name: str, uid: str, *addresses: str, device: str = "vetha") -> Path:
    ips = [{"address": f"{each}/24"} for each in addresses]
    arguments = [["K8S_POD_NAMESPACE", "a"], ["K8S_POD_NAME", uid], ["K8S_POD_UID", uid]]
    file = folder / f"wherry-{name}-eth0"
    file.write_text(json.dumps({**result(device, ips=ips), "cniArgs": arguments}))
    return file


class Followed:
    """Records the reports and deletions of a follower, in order."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.given: GivenAddresses = {}
        self.unusable: set[str] = set()
        self.reported = 0
        self.deleted = asyncio.Event()
        self.deleted.set()
        self.errors: list[OSError] = []

    async def report(self, given: GivenAddresses, closed: Collection[str], opened: Collection[str]) -> None:
        await asyncio.sleep(0.01)
        self.given, self.unusable = given, (self.unusable | set(closed)) - set(opened)
        self.reported += len(closed) + len(opened)
        self.seen.append(("unusable", sorted(self.unusable)))

    async def delete(self, addresses: Collection[str]) -> None:
        await self.deleted.wait()
        if self.errors:
            raise self.errors.pop()
        self.seen.append(("deleted", sorted(addresses)))


@contextlib.asynccontextmanager
async def following(folder: Path) -> AsyncIterator[Followed]:
    found = Followed()
    task = asyncio.create_task(AddressFollower(folder, "cni0", found.report, found.delete).run())
    try:
        await until(lambda: found.seen)
        yield found
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_an_address_is_usable_once_flows_of_its_former_holder_are_deleted(tmp_path: Path) -> None:
    first = write(tmp_path, "c1", "one", "10.244.1.5")
    async with following(tmp_path) as found:
        assert found.given == {"one": Given("a/one", ("10.244.1.5",))}
        assert found.seen == [("unusable", [])], "who has an address at the start keeps its flows"
        first.unlink()
        await until(lambda: found.seen[-1] == ("unusable", ["10.244.1.5"]) and len(found.seen) == 4)
        assert found.seen[1:] == [
            ("unusable", ["10.244.1.5"]),
            ("deleted", ["10.244.1.5"]),
            ("unusable", ["10.244.1.5"]),
        ]
        found.deleted.clear()
        write(tmp_path, "c2", "two", "10.244.1.5")
        await until(lambda: len(found.seen) == 5)
        assert found.unusable == {"10.244.1.5"} and not found.given, "nobody waits who may not use it yet"
        found.deleted.set()
        await until(lambda: not found.unusable)
        assert found.seen[-2] == ("deleted", ["10.244.1.5"]) and found.given == {"two": Given("a/two", ("10.244.1.5",))}
        write(tmp_path, "c3", "two", "10.244.1.6")
        await until(lambda: found.given == {"two": Given("a/two", ("10.244.1.5", "10.244.1.6"))})


async def test_a_file_that_cannot_be_read_or_is_lost_takes_no_address_from_a_pod_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices = {"vetha", "vethb"}
    monkeypatch.setattr(address_follower, "interface_index", lambda name: int(name in devices))
    folder = tmp_path / "results"
    folder.mkdir()
    file = write(folder, "c1", "one", "10.244.1.5")
    async with following(folder) as found:
        file.write_text("{")
        write(folder, "c2", "two", "10.244.1.6", device="vethb")
        await until(lambda: "two" in found.given and not found.unusable)
        shutil.rmtree(folder)
        await until(folder.exists)
        write(folder, "c3", "three", "10.244.1.7", device="vethc")
        await until(lambda: "three" in found.given and not found.unusable)
        assert found.given["one"].addresses == ("10.244.1.5",) and found.given["two"].addresses == ("10.244.1.6",)
        devices.clear()
        write(folder, "c3", "three", "10.244.1.7", "10.244.1.8", device="vethc")
        await until(lambda: found.given.keys() == {"three"} and found.unusable == {"10.244.1.5", "10.244.1.6"})


async def test_addresses_that_are_released_one_after_the_other_are_reported_once_and_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an IPv6 range each sandbox has another address."""
    monkeypatch.setattr(address_follower, "MAX_RELEASED", 5)
    found = Followed()
    follower = AddressFollower(tmp_path, "cni0", found.report, found.delete)
    await follower._reread()
    for number in range(20):
        file = write(tmp_path, f"c{number}", f"u{number}", f"fd00::{number:x}")
        await follower._reread()
        file.unlink()
        await follower._reread()
        if number == 9:
            found.reported = 0
    assert found.unusable == {f"fd00::{number:x}" for number in range(15, 20)} == set(follower._released)
    assert found.reported == 10 * 4, "closed before it is used, open, closed when it is released, forgotten"


async def test_an_address_whose_flows_could_not_be_deleted_is_usable_after_the_next_try(tmp_path: Path) -> None:
    found = Followed()
    follower = AddressFollower(tmp_path, "cni0", found.report, found.delete)
    await follower._reread()
    write(tmp_path, "c1", "one", "10.244.1.5")
    found.errors.append(OSError("no table"))
    with pytest.raises(OSError, match="no table"):
        await follower._reread()
    assert found.unusable == {"10.244.1.5"}
    await follower._reread()
    assert not found.unusable and found.seen[-2] == ("deleted", ["10.244.1.5"]) and "one" in found.given


async def test_a_kernel_that_deletes_no_flows_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def delete(*_: object) -> int:
        raise OSError(errno.EPERM, "Operation not permitted")

    flows = PodFlows()
    monkeypatch.setattr(pod_flows.flow_table, "connect", lambda: None)
    monkeypatch.setattr(pod_flows.flow_table, "delete_of", delete)
    for _ in range(3):
        await flows.delete({"10.244.1.5"})
    assert len([r for r in caplog.records if "flows of deleted pods" in r.getMessage()]) == 1


async def test_a_kernel_that_lists_no_flows_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    refused, flows = True, PodFlows()

    def delete(*_: object) -> int:
        if refused:
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        return 3

    monkeypatch.setattr(pod_flows.flow_table, "connect", lambda: None)
    monkeypatch.setattr(pod_flows.flow_table, "delete_between", delete)
    for refused in (True, True, False, True):  # noqa: B007 - read by `delete`
        await flows.delete_between({"10.244.2.5"}, {"10.244.1.2"})
    assert len([r for r in caplog.records if "Operation not supported" in r.getMessage()]) == 2


async def test_flows_are_deleted_until_none_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that was under way makes a flow again."""
    found, lists = [2, 1, 0, 5], []

    def delete(*_: object) -> int:
        lists.append(found[len(lists)])
        return lists[-1]

    monkeypatch.setattr(pod_flows.flow_table, "connect", lambda: None)
    monkeypatch.setattr(pod_flows.flow_table, "delete_between", delete)
    await PodFlows().delete_between({"10.244.2.5"}, {"10.244.1.2"})
    assert lists == [2, 1, 0]
