"""An API server whose disk is full: reads, watches and deletions go on, other writes are refused, and /readyz says so."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from control.storage import full_disk, reserve, writer
from tests.support.control import ApiUnderTest, api_server
from tests.support.disks import KI, MI, ext4_disk

MAPS = "/api/v1/namespaces/default/configmaps"


def config_map(name: str) -> dict[str, object]:
    return {"metadata": {"name": name}, "data": {"text": "x" * (20 * KI)}}


async def refused(api: ApiUnderTest) -> tuple[list[str], dict[str, object]]:
    """Create until the disk is full; return what was created, and the Status of what was not."""
    created: list[str] = []
    while True:
        answer = await api.request("POST", MAPS, config_map(f"m{len(created)}"))
        if answer.status != 201:
            return created, answer.json
        created.append(answer.json["metadata"]["name"])


async def created_once_there_is_space(api: ApiUnderTest, name: str) -> None:
    async with asyncio.timeout(30):
        while (await api.request("POST", MAPS, config_map(name))).status != 201:
            await asyncio.sleep(0.02)


async def test_a_full_disk_ends_creates_and_updates_alone_and_only_while_it_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "RETRY_SECONDS", 0.3)
    monkeypatch.setattr(full_disk, "RETRY_SECONDS", 0.3)
    policy = tmp_path / "policy.yaml"
    policy.write_text(json.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]}))
    with ext4_disk(tmp_path / "small", 32 * MI) as disk:
        async with api_server(disk.path / "control", audit_policy_file=policy) as api:
            for name in ("kept", "deleted"):
                assert (await api.request("POST", MAPS, config_map(name))).status == 201
            async with api.session().get(f"{MAPS}?watch=true") as watch:
                disk.fill(leave=64 * KI)
                made, status = await refused(api)
                assert {key: status.get(key) for key in ("status", "code", "reason")} == {
                    "status": "Failure",
                    "code": 500,
                    "reason": None,
                }
                assert str(status["message"]).startswith("storage cannot commit: database or disk is full")
                readiness = await api.request("GET", "/readyz?verbose=true")
                assert readiness.status == 500 and b"[-]etcd-readiness failed" in readiness.body
                assert (await api.request("GET", "/livez")).status == 200
                found = {item["metadata"]["name"] for item in (await api.request("GET", MAPS)).json["items"]}
                assert set(made) <= found and f"m{len(made)}" not in found
                assert (await api.request("DELETE", f"{MAPS}/deleted")).status == 200
                update = await api.request("PUT", f"{MAPS}/kept", config_map("kept") | {"data": {"text": "y"}})
                assert update.status == 500
                assert update.json["message"] == (
                    "storage cannot commit: database or disk is full; only deletions are possible until 2 MiB are free"
                )
                disk.free()
                await created_once_there_is_space(api, "last")
                assert (await api.request("GET", "/readyz")).status == 200
                seen: list[str] = []
                async with asyncio.timeout(30):
                    while seen[-1:] != ["last"]:
                        event = json.loads(await watch.content.readline())
                        seen.append(event["object"]["metadata"]["name"])
                assert seen[-len(made) - 2 :] == [*made, "deleted", "last"]
        lines = map(json.loads, (disk.path / "control" / "data" / "audit.log").read_text().splitlines())
        answers = [
            line["responseStatus"]["code"] for line in lines if line["verb"] == "create" and "responseStatus" in line
        ]
        assert answers[-1] == 201, "what is done once there is space is noted"


async def test_a_disk_that_updates_have_filled_takes_them_again_without_help(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reserve, "MAX_BYTES", 4 * MI)
    with ext4_disk(tmp_path / "small", 48 * MI) as disk:
        async with api_server(disk.path / "control") as api:
            await api.request("POST", MAPS, config_map("often"))

            async def update(number: int) -> int:
                text = f"{number} {'x' * 900 * KI}"
                status = (
                    await api.request("PUT", f"{MAPS}/often", config_map("often") | {"data": {"text": text}})
                ).status
                assert status in (200, 500)
                return status

            acknowledged = 0
            while await update(acknowledged + 1) == 200:
                acknowledged += 1
            assert acknowledged > 10
            assert (await api.request("GET", "/readyz")).status == 500
            async with asyncio.timeout(20):
                while await update(acknowledged + 1) != 200:
                    shown = (await api.request("GET", f"{MAPS}/often")).json["data"]["text"]
                    assert shown.startswith(f"{acknowledged} ")
                    await asyncio.sleep(0.02)
            assert (await api.request("GET", "/readyz")).status == 200


async def test_a_cluster_whose_disk_is_full_starts_and_can_be_read_and_deleted_from(tmp_path: Path) -> None:
    with ext4_disk(tmp_path / "small", 32 * MI) as disk:
        async with api_server(disk.path / "control") as api:
            for name in ("kept", "deleted"):
                assert (await api.request("POST", MAPS, config_map(name))).status == 201
        disk.fill()
        async with api_server(disk.path / "control") as api:
            assert (await api.request("GET", f"{MAPS}/kept")).status == 200
            assert (await api.request("DELETE", f"{MAPS}/deleted")).status == 200
            assert (await api.request("POST", MAPS, config_map("new"))).status == 500
            assert (await api.request("GET", "/readyz")).status == 500
            disk.free()
            await created_once_there_is_space(api, "new")
            assert (await api.request("GET", "/readyz")).status == 200
