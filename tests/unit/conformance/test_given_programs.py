"""Calls of upstream's programs in both versions and parsing of their reports (tests/conformance)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conformance import ginkgo
from tests.conformance.running import unexpected
from tests.conformance.upstream import NEEDED, Upstream, given


def _version(minor: int, folder: Path) -> Upstream:
    return Upstream(f"v1.{minor}.2", folder / "bin", folder / "tree", folder / "kept")


def test_a_folder_without_programs_or_sources_is_refused_with_what_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for name in NEEDED[1:]:
        (tmp_path / "bin" / name).touch(mode=0o755)
    with pytest.raises(AssertionError, match=r"lacks bin/e2e\.test, tree/test/conformance"):
        given(tmp_path)


@pytest.mark.parametrize(("minor", "option"), [(20, "-nodes=3"), (36, "--procs=3")])
def test_each_version_of_ginkgo_gets_its_own_options(minor: int, option: str, tmp_path: Path) -> None:
    command = ginkgo.command(_version(minor, tmp_path), ginkgo.Selection("wanted"), 3, tmp_path)
    assert option in command
    assert command[-2:] == [str(tmp_path / "bin/e2e.test"), "--"]


def test_reports_of_both_versions_are_read_alike(tmp_path: Path) -> None:
    junit = (
        '<testsuite><testcase name="[sig-apps] Job one" time="2"/><testcase name="[sig-node] Pods two"><skipped/>'
        '</testcase><testcase name="[sig-node] Pods three" time="1"><failure>no</failure></testcase></testsuite>'
    )
    (tmp_path / "junit_01.xml").write_text(junit)
    old = ginkgo.read(tmp_path)
    tests = [
        _spec("[sig-apps] Job", "one", "passed", 2),
        _spec("[sig-node] Pods", "two", "skipped", 0),
        _spec("[sig-node] Pods", "three", "failed", 1) | {"Failure": {"Message": "no"}},
        {"LeafNodeType": "SynchronizedBeforeSuite", "State": "passed"},
    ]
    (tmp_path / "report.json").write_text(json.dumps([{"SpecReports": tests}, {"SpecReports": None}]))
    assert ginkgo.read(tmp_path) == old
    assert ginkgo.table(old).splitlines()[2:] == ["| apps | 1 |  |", "| node | 0 | 1 |", "| together | 1 | 1 |"]


def test_a_failure_is_known_for_its_version_alone(tmp_path: Path) -> None:
    failed = ginkgo.Result("[sig-node] Pods should run through the lifecycle of Pods and PodStatus", passed=False)
    assert unexpected(_version(20, tmp_path), [failed]) == []
    assert unexpected(_version(36, tmp_path), [failed]) == [failed.name]


def _spec(container: str, name: str, state: str, seconds: int) -> dict[str, object]:
    texts = {"ContainerHierarchyTexts": [container], "LeafNodeText": name, "LeafNodeType": "It"}
    return {**texts, "State": state, "RunTime": seconds * 10**9}
