"""Docstrings name existing exceptions, and follow what they describe."""

from __future__ import annotations

import ast
import builtins
import importlib
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("agent", "bench", "control", "cri", "kube", "netproxy", "simulation", "wherry")
_EXCEPTION = r"(?:[a-z]\w*\.)*_?[A-Z]\w*[a-z]\w*"
_RAISED = re.compile(rf"\b[Rr]aises? ({_EXCEPTION}(?:(?:,|,? and|,? or) {_EXCEPTION})*)")


@cache
def modules() -> dict[str, ast.Module]:
    """Return the syntax trees of the sources by path."""
    paths = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    written = (path for path in paths if ROOT / "kube/api" not in path.parents)
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in written}


def docstrings(tree: ast.AST) -> Iterator[tuple[int, str, ast.stmt | None]]:
    """Yield the line and the text of each docstring, also of attributes, and the statement before it."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            for before, statement in zip([None, *body], body, strict=False):
                if (text := text_of(statement)) is not None:
                    yield statement.lineno, " ".join(text.split()), before


def text_of(statement: ast.stmt) -> str | None:
    match statement:
        case ast.Expr(ast.Constant(str(text))):
            return text
    return None


def raised(text: str) -> list[str]:
    """Return the exceptions that a docstring says are raised."""
    return [name for match in _RAISED.finditer(text) for name in re.findall(_EXCEPTION, match[1])]


@cache
def names_in(path: str) -> set[str]:
    """Return the names that a module defines or imports."""
    found = set[str]()
    for node in ast.walk(modules()[path]):
        match node:
            case ast.ClassDef(name):
                found.add(name)
            case ast.Import(names) | ast.ImportFrom(names=names):
                found.update((each.asname or each.name).split(".")[0] for each in names)
    return found


@cache
def classes() -> set[str]:
    """Return the names of all classes of the sources."""
    return {node.name for tree in modules().values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


def of_a_library(name: str, path: str) -> bool:
    """Return whether a library that the docstring names or the module imports has the exception."""
    library, _, name = name.rpartition(".")
    imported = (each for each in names_in(path) if each in sys.stdlib_module_names)
    libraries = [library] if library else imported
    return any(hasattr(importlib.import_module(each), name) for each in libraries)


def mistaken(name: str, path: str) -> bool:
    """Return whether no exception has the name, or whether the module means another whose name ends with it."""
    known, plain = names_in(path), name.rpartition(".")[2]
    if plain in known or hasattr(builtins, plain):
        return False
    if plain == name and any(each.endswith(name) for each in known):
        return True
    return plain not in classes() and not of_a_library(name, path)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Read it. Raise FlagError.", ["FlagError"]),
        (
            "Read it; raises VolumeError, OSError and ValueError where it is none.",
            ["VolumeError", "OSError", "ValueError"],
        ),
        ("Raises ssl.SSLError, or _Failed.", ["ssl.SSLError", "_Failed"]),
        ("Raises Corrupt, and Unavailable where the disk takes no writes.", ["Corrupt", "Unavailable"]),
        ("Raises 404 where there is none. The generation raises by one, and what is raised is logged.", []),
    ],
)
def test_exceptions_are_found_in_docstrings(text: str, names: list[str]) -> None:
    assert raised(text) == names


def test_docstrings_name_exceptions_that_exist() -> None:
    message = [(path, line, text) for path, tree in modules().items() for line, text, _ in docstrings(tree)]
    named = [(path, line, name) for path, line, text in message for name in raised(text)]
    assert len(named) > 500
    assert [f"{path}:{line}: {name}" for path, line, name in named if mistaken(name, path)] == []


def test_no_docstring_follows_another() -> None:
    """An attribute added between an attribute and its docstring leaves two docstrings under it."""
    found = [(path, line, before) for path, tree in modules().items() for line, _, before in docstrings(tree)]
    twice = [f"{path}:{line}" for path, line, before in found if before is not None and text_of(before) is not None]
    assert twice == []
