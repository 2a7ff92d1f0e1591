"""`wherry upgrade --check`: the version skew policy and all other rows, from facts that are given."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from kube.api import apiextensions_v1, discovery_v1, meta_v1
from wherry import upgrade_check, upgrade_command, upgrade_facts
from wherry.errors import WherryError
from wherry.expiry import Ending
from wherry.finding import Finding
from wherry.main import app
from wherry.settings import Settings
from wherry.snapshot_catalog import Entry
from wherry.upgrade_check import ERROR, OK, WARNING, Row, minor, rows
from wherry.upgrade_facts import Facts, Member, NodeFacts

NOW = datetime(2026, 1, 2, tzinfo=UTC)
CRD = apiextensions_v1.CustomResourceDefinition
VERSION = apiextensions_v1.CustomResourceDefinitionVersion


def facts(**changes: Any) -> Facts:
    """A cluster of v1.36 that can be upgraded to v1.37, but for these changes."""
    found = Facts(
        Settings(node_name="n1", node_ip="192.0.2.1"), "v1.37.0", True, NOW, version="v1.36.2+wherry", free=5 << 30
    )
    found.members = [Member("192.0.2.1:6443", "v1.36.2+wherry")]
    found.nodes = [NodeFacts("n1", "v1.36.2+wherry", True, True), NodeFacts("n2", "v1.34.0", True, False)]
    found.snapshots = [Entry("a.db", "/s/a.db", (NOW - timedelta(hours=1)).timestamp(), 1)]
    for name, value in changes.items():
        setattr(found, name, value)
    return found


def bad(found: Facts, problems: tuple[str, ...] = ()) -> list[Row]:
    return [row for row in rows(found, problems) if row.result != OK]


def test_a_cluster_that_can_be_upgraded_has_no_error_and_a_row_for_each_check() -> None:
    found = list(rows(facts()))
    assert [row for row in found if row.result != OK or row.fix] == []
    assert [row.check for row in found] == [
        "version",
        "members",
        "nodes",
        "ready nodes",
        "deprecated APIs",
        "stored versions",
        "extension servers",
        "disruption budgets",
        "daemons",
        "certificates",
        "disk",
        "configuration",
        "snapshot",
    ]


CASES: list[tuple[dict[str, Any], str, str, str]] = [
    ({"target": "v1.38.0", "nodes": []}, ERROR, "version", "v1.36.2+wherry to v1.38.0"),
    ({"target": "v1.35.0", "nodes": []}, WARNING, "version", "v1.36.2+wherry to v1.35.0"),
    ({"version": "v2"}, WARNING, "version", "v2 to v1.37.0"),
    ({"problem": "connection refused", "version": ""}, ERROR, "API server", "connection refused"),
    ({"members": [Member("m:1", "v1.35.9")]}, ERROR, "members", "m:1 has v1.35.9"),
    ({"members": [Member("m:1", problem="it is away")]}, WARNING, "members", "m:1: it is away"),
    ({"nodes": [NodeFacts("n2", "v1.33.9", True, False)]}, ERROR, "nodes", "n2 has v1.33.9"),
    ({"nodes": [NodeFacts("n2", "v1.38.0", True, False)]}, ERROR, "nodes", "n2 has v1.38.0"),
    ({"nodes": [NodeFacts("n2", "v1.36.0", False, False)]}, WARNING, "ready nodes", "not Ready: n2"),
    ({"nodes": [NodeFacts("n1", "v1.36.0", False, True)]}, ERROR, "ready nodes", "not Ready: n1"),
    (
        {"members": [Member("m:1", "v1.36.0", (("flows.v1beta3.f.io", "1.37"),))]},
        ERROR,
        "deprecated APIs",
        "flows.v1beta3.f.io: requested since the start, and not in v1.37.0",
    ),
    (
        {"members": [Member("m:1", "v1.36.0", (("flows.v1beta3.f.io", "1.38"),))]},
        WARNING,
        "deprecated APIs",
        "requested: flows.v1beta3.f.io (removed in 1.38)",
    ),
    (
        {"definitions": [("a.x.io", "v1beta1", True)]},
        WARNING,
        "stored versions",
        "besides the current one: a.x.io v1beta1",
    ),
    ({"definitions": [("a.x.io", "v1beta1", False)]}, ERROR, "stored versions", "no longer served: a.x.io v1beta1"),
    ({"unavailable": ["v1.x.io"]}, WARNING, "extension servers", "not available: v1.x.io"),
    (
        {"budgets": [f"d/b{i}" for i in range(7)]},
        WARNING,
        "disruption budgets",
        "allow no eviction: d/b0, d/b1, d/b2, d/b3, d/b4 and 2 more",
    ),
    ({"unhealthy": ["agent: it does not run"]}, ERROR, "daemons", "agent: it does not run"),
    ({"missing": [Finding("error", "no runc", "apt-get install runc")]}, ERROR, "machine", "no runc"),
    (
        {"endings": [Ending("the certificate in /x ends in 3 days", "`wherry certs renew` renews it")]},
        WARNING,
        "certificates",
        "the certificate in /x ends in 3 days",
    ),
    ({"free": 1 << 30}, ERROR, "disk", "1.0 GiB free under /var/lib/wherry"),
    ({"snapshots": []}, ERROR, "snapshot", "there is none"),
    (
        {"snapshots": [Entry("a.db", "/a.db", NOW.timestamp(), 1, problem="damaged")]},
        ERROR,
        "snapshot",
        "there is none",
    ),
    (
        {"snapshots": [Entry("a.db", "/a.db", (NOW - timedelta(hours=25)).timestamp(), 1)]},
        ERROR,
        "snapshot",
        "the last one is from 2025-12-31T23:00:00Z: /a.db",
    ),
    ({"snapshots_problem": "no bucket"}, WARNING, "snapshot", "no bucket"),
]


@pytest.mark.parametrize(
    ("changes", "result", "check", "found"), CASES, ids=[f"{c[2]} {n}" for n, c in enumerate(CASES)]
)
def test_what_stands_against_an_upgrade_is_found_with_a_fix(
    changes: dict[str, Any], result: str, check: str, found: str
) -> None:
    (row,) = bad(facts(**changes))
    assert (row.result, row.check, row.found) == (result, check, found) and row.fix


def test_deprecated_apis_that_no_release_removes_are_no_warning() -> None:
    (row,) = (
        row
        for row in rows(facts(members=[Member("m:1", "v1.36.0", (("endpoints.v1", ""),))]))
        if row.check == "deprecated APIs"
    )
    assert row.result == OK and row.found.endswith("with no release that removes them: endpoints.v1")


def test_a_worker_checks_itself_and_that_the_control_plane_is_not_older() -> None:
    worker = facts(settings=Settings(role="worker", joined="https://a"), members=[], snapshots=[])
    worker.nodes = worker.nodes[:1]
    found = list(rows(worker))
    assert [row.check for row in found if row.result == ERROR] == ["version"]
    assert "upgrade the control plane first" in found[0].fix
    worker.version = "v1.37.1"
    assert bad(worker) == []
    assert [row.check for row in rows(worker)] == [
        "version",
        "nodes",
        "ready nodes",
        "daemons",
        "certificates",
        "disk",
        "configuration",
    ]


def test_problems_of_the_configuration_are_those_of_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wherry.addresses.own_address", lambda: "192.0.2.1")
    settings = Settings(prefix=str(tmp_path), node_name="n1", node_ip="192.0.2.1")
    assert upgrade_command.config_problems(settings) == []
    settings.layout.etc.mkdir(parents=True)
    settings.layout.config.write_text("max-pods: 200\nflannel: true\nmax-pod: 1\n")
    problems = upgrade_command.config_problems(settings)
    assert [problem.partition(": ")[2] for problem in problems] == [
        "there is no option flannel",
        "there is no option max-pod; did you mean max-pods?",
    ]
    settings.layout.config.write_text("proxy-mode: ebpf\n")
    assert "proxy-mode ebpf: it is one of" in upgrade_command.config_problems(settings)[0]
    assert [row.check for row in bad(facts(), ("config.yaml:1: x",))] == ["configuration"]


def test_versions_are_read_with_anything_after_them() -> None:
    assert [minor(text) for text in ("v1.36.2+wherry", "1.37", "v1.5-rc.1", "v1.36x")] == [36, 37, 5, 36]
    assert [minor(text) for text in ("", "v2.0.0", "v1.x", "v1.99999")] == [None] * 4
    assert upgrade_check.require_version("1.37") == "v1.37"
    with pytest.raises(WherryError, match="--to latest: write a version such as"):
        upgrade_check.require_version("latest")


def test_deprecated_apis_are_read_from_the_metrics() -> None:
    text = """# HELP apiserver_requested_deprecated_apis Deprecated APIs.
# TYPE apiserver_requested_deprecated_apis gauge
apiserver_requested_deprecated_apis{group="",removed_release="",resource="endpoints",subresource="",version="v1"} 1.0
apiserver_requested_deprecated_apis{group="f.io",removed_release="1.38",resource="flows",version="v1beta3"} 1.0
apiserver_request_total{code="200"} 1.0
"""
    assert upgrade_facts.deprecated_apis(text) == (("endpoints.v1", ""), ("flows.v1beta3.f.io", "1.38"))
    assert upgrade_facts.deprecated_apis("") == ()


async def test_only_addresses_that_api_servers_wrote_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The administrator's certificate authenticates to each."""

    def slice_of(name: str, address: str) -> discovery_v1.EndpointSlice:
        return discovery_v1.EndpointSlice(
            metadata=meta_v1.ObjectMeta(name=name),
            address_type="IPv4",
            endpoints=[discovery_v1.Endpoint(addresses=[address])],
            ports=[discovery_v1.EndpointPort(port=6443)],
        )

    class Server:
        async def list(self, *_: Any, **__: Any) -> Any:
            items = [slice_of("kubernetes", "192.0.2.1"), slice_of("kubernetes-x", "192.0.2.66")]
            return SimpleNamespace(items=items)

    async def member(settings: Settings, address: str) -> Member:
        return Member(address)

    monkeypatch.setattr(upgrade_facts, "_member", member)
    found = await upgrade_facts._members(Settings(), Server())  # type: ignore[arg-type]
    assert [each.address for each in found] == ["192.0.2.1:6443"]


def test_stored_versions_are_those_that_are_not_written_any_more() -> None:
    found = CRD(
        metadata=meta_v1.ObjectMeta(name="a.x.io"),
        spec=apiextensions_v1.CustomResourceDefinitionSpec(
            group="x.io",
            names=apiextensions_v1.CustomResourceDefinitionNames(kind="A", plural="a"),
            scope="Namespaced",
            versions=[VERSION(name="v1", served=True, storage=True), VERSION(name="v1beta1", served=False)],
        ),
        status=apiextensions_v1.CustomResourceDefinitionStatus(stored_versions=["v1alpha1", "v1beta1", "v1"]),
    )
    assert list(upgrade_facts._stored(found)) == [("a.x.io", "v1alpha1", False), ("a.x.io", "v1beta1", False)]


@pytest.mark.parametrize(("changes", "code"), [({}, 0), ({"budgets": ["d/b"]}, 0), ({"snapshots": []}, 1)])
def test_the_exit_status_is_1_for_errors_only(
    changes: dict[str, Any], code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def collect(settings: Settings, target: str, now: datetime, *, own: bool) -> Facts:
        return facts(target="v1.37.0", own=own, **changes)

    Settings(prefix=str(tmp_path), node_name="n1", node_ip="192.0.2.1").save()
    monkeypatch.setattr(upgrade_facts, "collect", collect)
    arguments = ["upgrade", "--check", "--to", "v1.37.0", "--prefix", str(tmp_path)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == code and done.output.startswith("RESULT")
    shown = json.loads(CliRunner().invoke(app, [*arguments, "-o", "json"]).output)
    assert shown[0] == {"result": "ok", "check": "version", "found": "v1.36.2+wherry to v1.37.0", "fix": ""}


def test_without_check_the_command_says_how_to_upgrade(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["upgrade", "--prefix", str(tmp_path)])
    assert isinstance(done.exception, WherryError) and "install the new version" in str(done.exception)
