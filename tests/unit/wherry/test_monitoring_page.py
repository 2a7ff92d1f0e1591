"""docs/monitoring.md: its permissions suffice by the default roles, and the metrics that it names exist."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from control.auth.bootstrap_policy import default_policy
from control.auth.rule_set import RuleSet
from tests.support import messages

PAGE = (Path(__file__).resolve().parents[3] / "docs/monitoring.md").read_text()
BLOCKS = re.findall(r"```yaml[^\n]*\n(.*?)```", PAGE, re.S)


@pytest.fixture(scope="module")
def rules() -> RuleSet:
    """Return the rules of all roles that the page's manifest binds."""
    objects: list[dict[str, Any]] = list(yaml.safe_load_all(BLOCKS[0]))
    roles = {each["metadata"]["name"]: each for each in (*default_policy(), *objects) if each["kind"] == "ClusterRole"}
    bound = [each["roleRef"]["name"] for each in objects if each["kind"] == "ClusterRoleBinding"]
    assert len(bound) == 2
    return RuleSet([rule for name in bound for rule in roles[name]["rules"]])


def paths(port: str) -> Iterable[str]:
    """Return the paths of the metrics at a port, from the first table."""
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| `:{port}/metrics`"))
    return [path.removeprefix(f":{port}") for path in re.findall(r"`([^`]+)`", row.split("|")[1])]


def test_the_account_may_scrape_and_discover(rules: RuleSet) -> None:
    assert [path for path in paths("6443") if not rules.allows_path("get", path)] == []
    assert rules.allows("get", "", "nodes", "metrics", "node1")
    for group, resource in (("", "nodes"), ("", "pods"), ("", "services"), ("discovery.k8s.io", "endpointslices")):
        assert rules.allows("list", group, resource, "", "") and rules.allows("watch", group, resource, "", "")


def test_the_account_may_do_nothing_else_on_nodes(rules: RuleSet) -> None:
    assert not rules.allows("get", "", "nodes", "proxy", "node1")
    assert not rules.allows("list", "", "secrets", "", "")


def test_the_paths_of_the_agent_need_this_permission() -> None:
    from agent.server.authorization import attributes

    assert {attributes("GET", path) for path in paths("10250")} == {("get", ("metrics",))}


def test_the_jobs_name_files_of_the_pods_token_and_paths_of_the_agent() -> None:
    jobs = yaml.safe_load(BLOCKS[1])["scrape_configs"]
    assert {job.get("metrics_path", "/metrics") for job in jobs} <= {*paths("10250")}
    assert all(job["authorization"]["credentials_file"].endswith("/token") for job in jobs)


def test_the_selected_metrics_exist() -> None:
    table = PAGE.split("## Selected metrics")[1]
    names = re.findall(r"`([a-z_]+)(?:\{[^`]*\})?`", "".join(re.findall(r"^\| (.*?) \|", table, re.M)))
    assert len(names) > 8
    known = {text.replace(messages.VALUE, "apiserver_flowcontrol") for text in messages.templates()}
    assert [name for name in names if name not in known and name.removesuffix("_total") not in known] == []
