"""The dashboard and the alert rules of docs/monitoring: they are well-formed and query only metrics that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import messages

FOLDER = Path(__file__).resolve().parents[3] / "docs/monitoring"
PAGE = (FOLDER.parent / "monitoring.md").read_text()
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text())
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"] for rule in group["rules"]
]
BUILT_IN = {"up", "process_resident_memory_bytes"}
"""Prometheus' own, and one that its client library writes."""


def metrics_of(expression: str) -> set[str]:
    """Return the metrics that an expression queries."""
    text = re.sub(r'"[^"]*"', "", expression)
    text = re.sub(r"\{[^}]*\}|\[[^\]]*\]|\b(by|without|on|ignoring)\s*\([^)]*\)", "", text)
    return {name for name in re.findall(r"[a-zA-Z_:][a-zA-Z0-9_:]*(?!\w|\s*\()", text) if name != "by"}


def exists(name: str) -> bool:
    base = re.sub("_(bucket|sum|count)$", "", name)
    texts = messages.templates()
    prefixed = {text.replace(messages.VALUE, "apiserver_flowcontrol") for text in texts if messages.VALUE in text}
    return any(each in texts or each in prefixed for each in (name, base, name.removesuffix("_total")))


def panels() -> Iterator[dict[str, Any]]:
    return (panel for panel in DASHBOARD["panels"] if panel["type"] != "row")


def test_an_expression_is_read() -> None:
    found = metrics_of('sum by (le, name) (rate(a_b_total{code=~"5.."}[5m])) / count without (x) (c_d == 0) > 0.05')
    assert found == {"a_b_total", "c_d"}


@pytest.mark.parametrize("panel", list(panels()), ids=lambda panel: panel["title"])
def test_panels_query_metrics_that_exist(panel: dict[str, Any]) -> None:
    names = set[str]().union(*(metrics_of(target["expr"]) for target in panel["targets"]))
    assert names and [name for name in names - BUILT_IN if not exists(name)] == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_alerts_query_metrics_that_exist(rule: dict[str, Any]) -> None:
    names = metrics_of(rule["expr"])
    assert names and [name for name in names - BUILT_IN if not exists(name)] == []
    assert rule["labels"]["severity"] in ("critical", "warning", "info") and rule["annotations"]["summary"]


def test_names_and_places_are_unique() -> None:
    assert len({rule["alert"] for rule in RULES}) == len(RULES)
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    places = [tuple(panel["gridPos"][side] for side in "xy") for panel in panels()]
    assert len(set(places)) == len(places)


def test_jobs_of_the_alerts_are_those_of_the_page() -> None:
    jobs = {job for rule in RULES for job in re.findall(r'job="([^"]*)"', rule["expr"])}
    assert jobs == {"apiserver", "agent"}
    assert all(f"job_name: {job}" in PAGE for job in jobs)
