from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from control import recorded_servers
from control.recorded_servers import MOST, extended, names, of_certificate
from kube import pki

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_names_are_added_once_and_none_is_removed() -> None:
    first = extended(None, ["192.0.2.5", "192.0.2.5"])
    assert first is not None and names(first["data"]) == ["192.0.2.5"]
    assert first["metadata"] == {"name": "wherry-api-servers", "namespace": "kube-system"}
    assert extended(first, ["192.0.2.5"]) is None
    edited = {**first, "data": {**first["data"], "note": "an administrator's"}}
    second = extended(edited, ["fd00::1", "192.0.2.5"])
    assert second is not None and names(second["data"]) == ["192.0.2.5", "fd00::1"]
    assert second["data"]["note"] == "an administrator's"


def test_the_oldest_names_are_dropped_above_the_limit() -> None:
    full = extended(None, (f"n{number}" for number in range(MOST)))
    more = extended(full, ["new"])
    assert more is not None
    found = names(more["data"])
    assert len(found) == MOST and found[0] == "n1" and found[-1] == "new"


def test_a_config_map_without_data_records_nothing() -> None:
    assert names({}) == []
    assert extended({**recorded_servers.CONFIG_MAP, "data": None}, ["a"]) is not None


def test_names_of_a_certificate_that_no_node_gets_anyway_are_left_out(tmp_path: Path) -> None:
    ca = pki.new_ca("kubernetes", NOW)
    sans = (
        "kubernetes.default.svc",
        "kubernetes",
        "localhost",
        "127.0.0.1",
        "::1",
        "x.example.lan",
        "api.example",
        "192.0.2.5",
    )
    pki.issue(ca, "kube-apiserver", usages=(pki.SERVER,), sans=sans, now=NOW).save(tmp_path, "apiserver")
    assert of_certificate(tmp_path / "apiserver.crt", "example.lan") == ["192.0.2.5", "api.example"]
    assert of_certificate(tmp_path / "missing.crt", "example.lan") == []
