from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer
import yaml
from typer.testing import CliRunner

from wherry.command_options import options_of
from wherry.main import app
from wherry.membership import join
from wherry.up_command import up

KINDS = {str: "text", int: "number", bool: "true, false", list: "list"}
DOCS = Path(__file__).resolve().parents[3] / "docs"
TEXT = (DOCS / "wherry.md").read_text()


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


def test_the_configuration_reference_lists_every_option() -> None:
    """A row of the table is made of the option's own texts."""
    first, joining = options_of(up), options_of(join)
    page = (Path(__file__).resolve().parents[3] / "docs/configuration.md").read_text()
    rows = [line for line in page.split("## Options\n")[1].splitlines() if line.startswith("| `")]
    assert rows == [
        f"| `{name}` | {KINDS[option.type]} | {option.default or '-'} | "
        f"{'both' if name in first and name in joining else '`up`' if name in first else '`join`'} | {option.text} |"
        for name, option in (first | {name: joining[name] for name in joining if name not in first}).items()
    ]


@pytest.mark.parametrize("page", sorted(DOCS.glob("**/*.md")), ids=lambda path: path.stem)
def test_yaml_in_documents_is_valid(page: Path) -> None:
    for block in re.findall(r"^```yaml\b.*?\n(.*?)^```", page.read_text(), re.M | re.S):
        assert [each for each in yaml.safe_load_all(block) if each is not None]


@pytest.mark.parametrize("page", sorted(DOCS.glob("**/*.md")), ids=lambda path: path.stem)
def test_python_in_documents_can_be_compiled(page: Path) -> None:
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S):
        compile(block, str(page), "exec")


def test_the_example_of_the_configuration_page_is_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wherry.addresses.own_address", lambda: "192.0.2.1")
    page = (Path(__file__).resolve().parents[3] / "docs/configuration.md").read_text()
    path = tmp_path / "config.yaml"
    path.write_text(page.split("```yaml\n")[1].split("```")[0])
    assert CliRunner().invoke(app, ["config", "validate", str(path), "--prefix", str(tmp_path)]).exit_code == 0
