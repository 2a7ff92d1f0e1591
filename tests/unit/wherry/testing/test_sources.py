"""Objects, conditions and scripts as tests write them, and the errors of wrong ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from wherry.testing import conditions
from wherry.testing.errors import ClusterError
from wherry.testing.manifests import objects
from wherry.testing.nodes.scripts import Exit, Pull, Run, Scripts

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}
TEXT = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n"


def test_objects_come_from_text_files_folders_dicts_and_lists(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(TEXT + "---\n" + TEXT)
    (tmp_path / "notes.txt").write_text("no manifest")
    for source, number in ((TEXT, 1), (tmp_path / "one.yaml", 2), (str(tmp_path), 2), (POD, 1), ([POD, TEXT], 2)):
        assert objects(source) == [POD] * number
    assert objects({"kind": "List", "items": [POD, POD]}) == [POD, POD]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("no-such.yaml", "no-such.yaml: no such file or directory: check the path"),
        (Path("/dev/zero"), "/dev/zero: it has more than 64 MiB"),
        ("a: [", "the text: not YAML: "),
        ("- 1\n- 2\n", "is not an object with apiVersion and kind"),
        ("kind: Pod\n", "an object without apiVersion"),
        (TEXT + "---\n---\nkind: Pod\n", "the text, document 3: an object without apiVersion: {'kind': 'Pod'}"),
        (TEXT + "---\n- 7\n", "the text, document 2: [7] is not an object with apiVersion and kind"),
        ("kind: List\nitems: [a]\n", "the text: 'a' is not an object with apiVersion and kind"),
        ("a: 2026-99-99\n", "the text: not YAML: a value is neither a number nor a date"),
        (Path("/bin/true"), "/bin/true: it is not text in UTF-8: give a file of manifests"),
        ({"apiVersion": "v1", "kind": "Pod"}, "Pod: an object without metadata.name"),
        ("# nothing\n", "the text: no objects"),
    ],
)
def test_a_source_that_is_no_object_is_named(source: Any, message: str) -> None:
    with pytest.raises(ClusterError) as error:
        objects(source)
    assert message in str(error.value)


OBJECT = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "False", "reason": "Why"}], "n": 3}}


@pytest.mark.parametrize(
    ("condition", "met", "absent"),
    [
        ("Ready", False, False),
        ("ready=False", True, False),
        ("status.phase=Running", True, False),
        ("status.n=3", True, False),
        ("status.other", False, False),
        ("status.conditions.0.type=Ready", True, False),
        ("exists", True, False),
        ("deleted", False, True),
        (lambda obj: obj["status"]["n"] > 2, True, False),
    ],
)
def test_conditions(condition: Any, met: bool, absent: bool) -> None:
    check = conditions.compiled(condition)
    assert (bool(check(OBJECT)), bool(check({}))) == (met, absent)


def test_a_failed_wait_describes_the_state() -> None:
    assert conditions.described(OBJECT) == "phase=Running, Ready=False (Why)"
    assert conditions.described({}) == "it does not exist"


def test_the_newest_script_that_matches_holds() -> None:
    scripts = Scripts()
    scripts.add("web-*", Run())
    scripts.add("other/web-*", Exit(1), "c")
    assert [step for step in scripts.find("default", "web-1", "c").steps] == [Run()]  # type: ignore[union-attr]
    assert [step for step in scripts.find("other", "web-1", "c").steps] == [Exit(1)]  # type: ignore[union-attr]
    assert [step for step in scripts.find("other", "web-1", "d").steps] == [Run()]  # type: ignore[union-attr]
    assert scripts.find("default", "db", "c") is None


@pytest.mark.parametrize(
    ("steps", "message"), [([], "has no steps"), ([1], "has a step that is none: 1"), ([Pull(3)], "ends with Pull")]
)
def test_a_script_that_is_none_is_refused(steps: Any, message: str) -> None:
    with pytest.raises(ClusterError, match=message):
        Scripts().add("web", steps)
