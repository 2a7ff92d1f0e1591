"""Charges to quotas that the server decodes in parts."""

from __future__ import annotations

from pathlib import Path

from tests.support.control import api_server

PATH = "/api/v1/namespaces/default"
HARD = {f"count/c{i}.example.com": "1" for i in range(3000)} | {"configmaps": "2"}


async def test_a_charge_changes_one_resource_of_a_large_quota(tmp_path: Path) -> None:
    async with api_server(tmp_path, enable_controllers=False, enable_scheduler=False) as api:
        quota = {"metadata": {"name": "large"}, "spec": {"hard": HARD}}
        assert (await api.request("POST", f"{PATH}/resourcequotas", quota)).status == 201
        quota["status"] = {"hard": HARD, "used": dict.fromkeys(HARD, "0")}
        assert (await api.request("PUT", f"{PATH}/resourcequotas/large/status", quota)).status == 200
        codes = [
            (await api.request("POST", f"{PATH}/configmaps", {"metadata": {"name": f"m{n}"}})).status for n in range(3)
        ]
        assert codes == [201, 201, 403]
        found = (await api.request("GET", f"{PATH}/resourcequotas/large")).json
    assert found["spec"]["hard"] == found["status"]["hard"] == HARD
    assert found["status"]["used"] == dict.fromkeys(HARD, "0") | {"configmaps": "2"}
