from __future__ import annotations

from pathlib import Path

import pytest
import typer

from wherry.main import app

TEXT = (Path(__file__).resolve().parents[3] / "docs/wherry.md").read_text()


def commands() -> dict[str, list[str]]:
    """Return command -> its options, as the command line has them."""
    found: dict[str, list[str]] = {}
    root = typer.main.get_command(app)
    waiting = [("wherry", root)]
    while waiting:
        name, command = waiting.pop()
        inner = getattr(command, "commands", None)
        if inner:
            waiting += [(f"{name} {sub}", child) for sub, child in inner.items()]
            continue
        found[name] = [o for parameter in command.params for o in parameter.opts if o.startswith("--")]
    return found


@pytest.mark.parametrize("name", sorted(commands()))
def test_every_command_and_option_is_documented(name: str) -> None:
    assert f"`{name}`" in TEXT
    storage = Path(__file__).resolve().parents[3] / "docs/storage.md"
    text = TEXT + (storage.read_text() if storage.exists() else "")
    missing = [option for option in commands()[name] if option not in ("--prefix", "--help") and option not in text]
    assert not missing
