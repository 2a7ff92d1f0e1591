"""The leases by which clients count the API servers, and the health checks that name the steps of the start."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from control import start_steps
from control.server_tasks import server_identity
from control.server_tasks.server_identity import ServerIdentity, identity
from kube import loops
from kube.clock import SYSTEM
from tests.support.control import api_server
from tests.support.hollow import eventually, running

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
LABEL = "apiserver.kubernetes.io/identity"


async def test_a_server_has_a_lease_and_those_that_ran_out_are_collected(tmp_path: Path) -> None:
    async with api_server(tmp_path) as api:
        answer = await api.request("GET", f"{LEASES}?labelSelector={LABEL}=kube-apiserver")
        (own,) = answer.json["items"]
        assert own["metadata"]["name"].startswith("apiserver-") and own["spec"]["leaseDurationSeconds"] == 3600
        assert own["spec"]["holderIdentity"].startswith(own["metadata"]["name"] + "_")
        for name, label, renewed in (
            ("apiserver-gone", "kube-apiserver", "2026-01-01T00:00:00.000000Z"),
            ("apiserver-others", "other", "2026-01-01T00:00:00.000000Z"),
            ("apiserver-there", "kube-apiserver", own["spec"]["renewTime"]),
        ):
            spec = {"holderIdentity": name, "leaseDurationSeconds": 3600, "renewTime": renewed}
            body = {"metadata": {"name": name, "labels": {LABEL: label}}, "spec": spec}
            assert (await api.request("POST", LEASES, body)).status == 201
        server_identity_controller = ServerIdentity(api.api.registry, SYSTEM, "another")
        await server_identity_controller.collect()
        await server_identity_controller.renew()
        await server_identity_controller.renew()
        names = {lease["metadata"]["name"] for lease in (await api.request("GET", LEASES)).json["items"]}
        assert names >= {own["metadata"]["name"], "apiserver-others", "apiserver-there", identity("another")}
        assert "apiserver-gone" not in names

        text = (await api.request("GET", "/readyz?verbose")).body.decode()
        assert all(f"[+]{step} ok\n" in text for step in start_steps.STEPS)
        one = await api.request("GET", "/livez/poststarthook/rbac/bootstrap-roles")
        assert (one.status, one.body) == (200, b"ok")
        reported = (await api.request("GET", "/version")).json
        assert reported["gitCommit"] and reported["buildDate"].endswith("Z")
        metrics = (await api.request("GET", "/metrics")).body.decode()
        assert 'kubernetes_feature_enabled{name="WatchList",stage="BETA"} 1' in metrics
        assert f'git_commit="{reported["gitCommit"]}"' in metrics
        assert b"kube-apiserver statusz" in (await api.request("GET", "/statusz")).body


async def test_an_unforeseen_error_of_the_collection_ends_neither_it_nor_the_renewal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_identity, "RENEW_SECONDS", 0.05)
    monkeypatch.setattr(loops, "FIRST_RETRY", 0.05)
    async with api_server(tmp_path) as api:
        server_identity_controller = ServerIdentity(api.api.registry, SYSTEM, "another")
        failures, renewals, collected = [1], [0], asyncio.Event()
        collect = server_identity_controller.collect

        async def fails_once() -> None:
            if failures:
                failures.clear()
                raise ValueError("a bug")
            await collect()

        def renewed() -> None:
            renewals[0] += 1

        monkeypatch.setattr(server_identity_controller, "collect", fails_once)
        async with running(server_identity_controller.run(renewed, collected.set)):
            await asyncio.wait_for(collected.wait(), 10)
            await eventually(lambda: renewals[0] > 3)
