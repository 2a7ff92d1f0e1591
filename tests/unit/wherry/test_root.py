"""Commands that change the machine or read secrets refuse other users than root, before anything else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.unit.wherry.test_command_line import ALL
from wherry.errors import WherryError
from wherry.main import app

FOR_ALL = set("check completion dev help kubeconfig kubectl logs status ui version why".split()) | {
    "bundle create",
    "config print",
    "config validate",
}
"""Commands that any user may run."""
COMMANDS = [words for words, command in ALL.items() if not hasattr(command, "commands")]
NEED_ROOT = [words for words in COMMANDS if " ".join(words) not in FOR_ALL]


@pytest.mark.parametrize("words", [*NEED_ROOT, ("check", "--security")], ids=" ".join)
def test_a_command_for_root_refuses_others(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    command = ALL[tuple(word for word in words if not word.startswith("-"))]
    needed = [parameter for parameter in command.params if parameter.required]
    options = [text for each in needed if each.param_type_name == "option" for text in (each.opts[0], "x")]
    arguments = ["/x" for each in needed if each.param_type_name == "argument"]
    more = {"upgrade": ["--check"], "crictl": ["ps"], "ctr": ["version"]}.get(words[0], [])
    found = CliRunner().invoke(app, [*words, "--prefix", str(tmp_path), *options, *more, *arguments])
    assert isinstance(found.exception, WherryError), found.output
    assert str(found.exception) == "this needs root: run it with sudo"
    assert list(tmp_path.iterdir()) == []


def test_the_commands_for_all_users_exist() -> None:
    assert {" ".join(words) for words in COMMANDS} >= FOR_ALL
