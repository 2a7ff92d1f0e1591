"""The check of docstrings, comments and documents (scripts/prose), on offending and clean samples."""

from __future__ import annotations

import importlib.util
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]
TABLES = """
## Words

| use | not |
| --- | --- |
| report | **is told**, say |
| authentication | **who they are** |
| retry | **tried again**, retry *somewhere* |

| use | not |
| --- | --- |
| parse | **takes in**, **is told** |
| `elapsed` | **`took`**; `due` |

## Other

| use | not |
| --- | --- |
| this | **that** |
"""


def load() -> ModuleType:
    loader = SourceFileLoader("prose", str(ROOT / "scripts/prose"))
    spec = importlib.util.spec_from_loader("prose", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def prose() -> ModuleType:
    return load()


def found(prose: ModuleType, name: str, text: str) -> list[tuple[int, str]]:
    result: list[tuple[int, str]] = prose.problems(name, text, prose.rules(TABLES))
    return result


def test_rules_are_the_bold_words_of_the_section(prose: ModuleType) -> None:
    assert [use for _, _, use in prose.rules(TABLES)] == ["report or: parse", "authentication", "retry", "parse"]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.py", '"""Module."""\n\nX = 1\n"""The user is told."""\n', [(4, "is told → report or: parse")]),
        ("a.py", '"""Module.\n\nUsers were\ntold."""\n', [(3, "were told → report or: parse")]),
        ("a.py", "# Taken in first.\n", [(1, "Taken in → parse")]),
        ("a.py", "x = 1 \t# who\n# they are\n", [(1, "who they are → authentication")]),
        ("a.py", "def f():\n\t# once\n\n\t# and tried again\n\tpass\n", [(4, "tried again → retry")]),
        ("a.py", "class A:\n    def f(self):\n        '''It is told.'''\n", [(3, "is told → report or: parse")]),
        ("a.py", '"""What it does."""\n', [(1, '"""What → a noun or a verb first')]),
        ("a.py", 'X = 1\n"""How many."""\n', [(2, '"""How → a noun or a verb first')]),
        ("a.py", 'def f():\n    """\n    Why.\n    """\n', [(2, '"""Why → a noun or a verb first')]),
        ("a.py", 'class A:\n    x: int\n    """When."""\n', [(3, '"""When → a noun or a verb first')]),
        ("a.py", 'class A:\n    """Is it so? Yes."""\n', [(2, "? → a statement")]),
        ("a.py", '"""Leases: who\nholds them. No more."""\n', [(1, ": who → nouns after the colon")]),
        (
            "a.py",
            'def f():\n    raise ValueError(f"{x}: the node "\n        "is told")\n',
            [(2, "is told → report or: parse")],
        ),
        ("a.py", 'log.info("it is tried again: %s", x)\n', [(1, "tried again → retry")]),
        ("a.py", 'flags.add_argument("--x", help="who they are")\n', [(1, "who they are → authentication")]),
        ("a.md", "# Title\n\nIt is\ntold.\n", [(3, "is told → report or: parse")]),
        ("a.service", "[Unit]\n# tried again\n", [(2, "tried again → retry")]),
        ("run", "#!/usr/bin/env bash\n# tried again\necho tried again\n", [(2, "tried again → retry")]),
        ("run", "#!/usr/bin/env python3\n# tried again\n", [(2, "tried again → retry")]),
    ],
)
def test_offending_prose_is_found(prose: ModuleType, name: str, text: str, expected: list[tuple[int, str]]) -> None:
    assert found(prose, name, text) == expected


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.py", '"""Retries what failed. Users say so, and `is told` is a name."""\n'),
        ("a.py", '"""Module."""\n\nx = "is told"\nprint("it is", "told")\n'),
        ("a.py", '"""Whatever it does, with that."""\n'),
        ("a.py", '"""Leases. Do they expire? Holders: who has them, `a?`."""\n\nX = 1\n"""Leases: who has them."""\n'),
        ("a.md", "Text.\n\n    is told\n\n```\nis told\n```\n\n`is told`, is toldx\n"),
        ("a.service", "[Service]\nExecStart=/bin/echo is told\n"),
        ("a.txt", "is told\n"),
    ],
)
def test_clean_prose_is_not(prose: ModuleType, name: str, text: str) -> None:
    assert found(prose, name, text) == []


NAMES = "took = 1\n", "def f(took): pass\n", "class A:\n    _took: int\n", "import a as took\n", "self._took = 1\n"


@pytest.mark.parametrize("text", NAMES)
def test_a_banned_name_that_the_product_binds_is_found(prose: ModuleType, text: str) -> None:
    names = prose.banned_names(TABLES)
    (problem,) = prose.problems("kube/a.py", text, [], names)
    assert names == {"took": "`elapsed`"} and problem[1].endswith("took → `elapsed`")
    assert prose.problems("tests/a.py", text, [], names) == []


@pytest.mark.parametrize("text", ["x.took()\n", "print(took)\n", "mistook = due = 1\n", "# took\n"])
def test_other_uses_of_a_banned_name_are_not(prose: ModuleType, text: str) -> None:
    assert prose.problems("kube/a.py", text, [], prose.banned_names(TABLES)) == []


def test_the_lexicon_does_not_apply_to_itself(prose: ModuleType) -> None:
    text = "# Contributing\n\nIt is told.\n" + TABLES
    assert found(prose, "CONTRIBUTING.md", text) == [(3, "is told → report or: parse")]


def test_the_program_prints_file_line_and_the_better_word(
    prose: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text("One.\nIt is tried again.\n")
    assert prose.main([str(page)]) == 1
    assert capsys.readouterr().out == f"{page}:2: tried again → back-off, retry\n"
