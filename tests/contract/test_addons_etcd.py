"""Addons where servers share an etcd: the leader applies its folder, and another that follows deletes nothing of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from control.controllers.addons import controller
from tests.support.control import ApiUnderTest, api_server
from tests.support.etcd import etcd, needs_etcd
from tests.support.hollow import eventually

pytestmark = needs_etcd
NAMESPACE = "/api/v1/namespaces/default/configmaps"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager"
PARENT = "/api/v1/namespaces/kube-system/configmaps/addon-a"


def folder(path: Path) -> Path:
    path.mkdir()
    made = path / "addons"
    made.mkdir(mode=0o755)
    return made


def write(place: Path, value: str) -> None:
    draft = place.parent / "a.yaml"
    draft.write_text(f'apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: one}}\ndata: {{a: "{value}"}}\n')
    draft.chmod(0o644)
    draft.rename(place / "a.yaml")


async def test_a_leader_applies_its_own_folder_and_keeps_what_another_applied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, seconds in (
        ("SCAN_SECONDS", 0.1),
        ("SETTLE_SECONDS", 0.1),
        ("PRUNE_SECONDS", 0.5),
        ("CHECK_SECONDS", 0.2),
    ):
        monkeypatch.setattr(controller, name, seconds)
    first, second = folder(tmp_path / "first"), folder(tmp_path / "second")
    async with etcd(tmp_path / "etcd") as cluster:

        def server(place: Path, address: str) -> Any:
            shared = {"store": "etcd", "etcd_servers": tuple(cluster.servers), "advertise_address": address}
            return api_server(place.parent, enable_controllers=True, addons_dir=place, **shared)

        async def parent(api: ApiUnderTest, **data: str) -> bool:
            answer = await api.request("GET", PARENT)
            return answer.status == 200 and answer.json["data"].items() >= data.items()

        async with server(second, "192.0.2.2") as b:

            async def leads() -> bool:
                return (await b.request("GET", LEASE)).status == 200

            await eventually(leads)
            write(first, "1")
            async with server(first, "192.0.2.1"):
                pass  # it does not lead, and so applies nothing
            assert (await b.request("GET", PARENT)).status == 404
        async with server(first, "192.0.2.1") as a:
            await eventually(lambda: parent(a, state="Applied", server="192.0.2.1"))
        async with server(second, "192.0.2.2") as b:
            await eventually(lambda: parent(b, state="Kept", server="192.0.2.1"))
            assert (await b.request("GET", f"{NAMESPACE}/one")).json["data"] == {"a": "1"}
            write(second, "2")
            await eventually(lambda: parent(b, state="Applied", server="192.0.2.2"))
            assert (await b.request("GET", f"{NAMESPACE}/one")).json["data"] == {"a": "2"}
            (second / "a.yaml").unlink()

            async def gone() -> bool:
                return (await b.request("GET", PARENT)).status == 404

            await eventually(gone)
            assert (await b.request("GET", f"{NAMESPACE}/one")).status == 404
