"""Commands in documents: all exist with their options, and a test that a page of `PAGES` names runs those of this page."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.unit.wherry.test_documentation import commands

ROOT = Path(__file__).resolve().parents[3]
PAGES = ("install", "ha", "upgrade", "backup")
SHARED = ("tests/support/cluster.py", "tests/support/machines.py")


def typed(page: str) -> list[list[str]]:
    """Return the words of the commands in a page's indented blocks."""
    text = (ROOT / f"docs/{page}.md").read_text().replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    return [shlex.split(line, comments=True) for line in lines]


def evidence(page: str) -> str:
    """Return the text of the tests that a page names, with what they stand on."""
    text = (ROOT / f"docs/{page}.md").read_text()
    named = re.findall(r"`(tests/[a-z_/]+\.py)`", text)
    assert named, f"docs/{page}.md names no test"
    return "".join((ROOT / path).read_text() for path in (*named, *SHARED))


def cases() -> list[tuple[str, list[str]]]:
    return [(page, words) for page in PAGES for words in typed(page)]


@pytest.mark.parametrize(
    ("page", "words"), cases(), ids=lambda value: value if isinstance(value, str) else " ".join(value)[:50]
)
def test_commands_in_documents_exist_and_are_run(page: str, words: list[str]) -> None:
    program, *rest = words
    if program.startswith("scripts/"):
        assert (ROOT / program).is_file()
        if program == "scripts/install":
            return
        rest = [program.removeprefix("scripts/"), *rest]
        program = "wherry"
    if program == "rm":
        return
    options = [word.partition("=")[0] for word in rest if word.startswith("--")]
    tested = evidence(page)
    if program.rpartition("/")[2] == "wherry":
        name = f"wherry {' '.join(rest[:2])}" if f"wherry {' '.join(rest[:2])}" in commands() else f"wherry {rest[0]}"
        assert set(options) <= set(commands()[name]), f"{name} has no such options"
        verbs = name.split()[1:]
    else:
        assert program == "kubectl"
        verbs = rest[:1]
    for word in (*verbs, *options):
        forms = {word, word.removeprefix("--etcd-")}
        found = [form for form in forms if re.search(rf"[\"'={{ ]{re.escape(form)}\b", tested)]
        assert found, f"no test of docs/{page}.md runs {program} {word}"
