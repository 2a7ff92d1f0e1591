"""Completion of kubectl's arguments: values of its `__complete`, without those that a shell could run."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from wherry import kubectl
from wherry.kubectl_completion import Item, complete, items


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("get\tDisplay one or many\ngetall\n:4\n", [Item("get", "Display one or many"), Item("getall")]),
        ("pods/\n:6\n", [Item("pods/")]),
        ("a\n:5\n", []),  # an error
        ("json\nyaml\n:8\n", []),  # patterns of files
        ("_activeHelp_ Write a name.\nweb-0\n:4\n", [Item("web-0")]),
        (":4\n", []),
        ("", []),
        ("killed\n", []),
        (":x\n", []),
    ],
)
def test_values_and_help_are_read_up_to_the_directive(text: str, values: list[Item]) -> None:
    assert items(text) == values


@pytest.mark.parametrize("value", ["x$(id)", "x`id`", "a\\", 'a"b', "a'b", "a;b", "a b", "a\rb", "é"])
def test_names_that_a_shell_might_evaluate_are_not_offered(value: str) -> None:
    assert items(f"{value}\nweb\n:4\n") == [Item("web")]
    assert not {"$", "`", "\\", '"', "'", "\x1b"} & set(items(f"web\t{value}\x1b[2K\n:4\n")[0].help)


def test_without_kubectl_nothing_is_offered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(kubectl, "program", lambda: str(tmp_path / "none"))
    monkeypatch.setattr(subprocess, "run", missing)
    assert complete(["g"], tmp_path, {}) == []


def missing(*arguments: object, **options: object) -> None:
    raise FileNotFoundError
