"""The manual page: every command and option of the command line, and the files that docs/wherry.md names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from tests.unit.wherry.test_documentation import commands
from wherry import VERSION, manual
from wherry.main import app

PAGE = manual.page(app, date="2026-01-02")
DOCS = Path(__file__).resolve().parents[3] / "docs"


def plain(page: str) -> str:
    """Return the text of a page without escapes and fonts."""
    text = re.sub(r"\\f[BIR]|\\&", "", page)
    for escape, character in ((r"\-", "-"), (r"\(aq", "'"), (r"\(ga", "`"), (r"\(ti", "~"), (r"\e", "\\")):
        text = text.replace(escape, character)
    return text


def section(words: str) -> str:
    """Return the part of the page that describes a command."""
    found = re.search(rf"^\.SS {re.escape(words)}(?: [\[{{].*)?\n((?:(?!\.S[SH] ).*\n)*)", plain(PAGE), re.M)
    assert found, f"the page has no section {words}"
    return found[1]


def test_the_head_names_version_and_date() -> None:
    assert PAGE.startswith(f'.TH WHERRY 1 "2026-01-02" "wherry {VERSION}" "Wherry"\n')
    assert "\n.SH NAME\nwherry \\- a Kubernetes that a person can read\n" in PAGE


@pytest.mark.parametrize("name", sorted(commands()))
def test_every_command_has_a_section_with_its_options(name: str) -> None:
    assert [option for option in commands()[name] if option not in section(name)] == []


@pytest.mark.parametrize("role", manual.ROLES)
def test_every_daemon_has_a_section(role: str) -> None:
    assert "foreground" in section(f"wherry {role}")


def test_the_files_are_those_of_the_reference() -> None:
    table = (DOCS / "wherry.md").read_text().split("## Files\n")[1]
    paths = re.findall(
        r"`([^`]+)`", "".join(line.split("|")[1] for line in table.splitlines() if line.startswith("| `"))
    )
    assert paths and [path for path in paths if path not in plain(PAGE)] == []


def test_texts_become_neither_requests_nor_escapes() -> None:
    shown = typer.Typer()

    @shown.command()
    def first() -> None:
        """.so /etc/passwd

        'tis \\fBbold\\fR – `code`
        """

    shown.command("second")(lambda: None)
    page = manual.page(shown, date="2026-01-02")
    assert "\n\\&.so /etc/passwd\n" in page
    assert "\n\\(aqtis \\efBbold\\efR \\[u2013] \\(gacode\\(ga\n" in page


def test_the_page_is_ascii_and_each_request_is_known() -> None:
    assert PAGE.isascii()
    requests = {line.split()[0] for line in PAGE.splitlines() if line.startswith(".")}
    assert requests <= {".TH", '.\\"', ".nh", ".ad", ".SH", ".SS", ".B", ".br", ".PP", ".TP"}
