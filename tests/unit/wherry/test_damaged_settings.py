"""`wherry reset` removes an installation whose saved options are damaged."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from wherry import damaged_settings, main, reset
from wherry.errors import WherryError
from wherry.main import app
from wherry.settings import Settings, load


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            '{"role": "worker", "joined": "https://192.0.2.1:6443", "runtime_endpoint": "unix:///x", "max_pods": "many"}',
            {"role": "worker", "joined": "https://192.0.2.1:6443", "runtime_endpoint": "unix:///x"},
        ),
        ('{"node_name": "n", "prefix": "/elsewhere", "api_port": null}', {"node_name": "n"}),
        ('{"node_name": "n"', {}),
        ("[1]", {}),
        ("", {}),
        (None, {}),
    ],
)
def test_what_can_be_read_is_used_to_remove_the_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None, expected: dict[str, str]
) -> None:
    removed = list[Settings]()

    async def remove(settings: Settings, *, keep_data: bool) -> None:
        removed.append(settings)

    monkeypatch.setattr(main, "root", lambda: None)
    monkeypatch.setattr(reset, "reset", remove)
    path = Settings(prefix=str(tmp_path)).layout.settings
    if content is None:
        path.mkdir(parents=True)
    else:
        path.parent.mkdir(parents=True)
        path.write_text(content)
    done = CliRunner().invoke(app, ["reset", "--yes", "--prefix", str(tmp_path)])
    assert done.exit_code == 0 and removed == [Settings(prefix=str(tmp_path), **expected)]  # type: ignore[arg-type]
    assert f"{path} is " in done.output and "defaults for the others" in done.output


def test_a_whole_file_is_used_as_it_is_and_the_message_of_a_damaged_one_names_the_command(tmp_path: Path) -> None:
    settings = Settings(prefix=str(tmp_path), max_pods=7)
    settings.save()
    assert damaged_settings.load_or_salvage(str(tmp_path)) == (settings, "")
    assert damaged_settings.load_or_salvage(str(tmp_path / "none")) == (None, "")
    settings.layout.settings.write_text("{")
    with pytest.raises(WherryError, match="or `wherry reset`"):
        load(str(tmp_path))


@pytest.mark.parametrize("content", [b"", b"mode: [", b"mode: 7", b"\xff", b"kind: Other"])
def test_rules_are_removed_though_the_proxys_configuration_is_damaged(tmp_path: Path, content: bytes) -> None:
    settings = Settings(prefix=str(tmp_path), proxy_mode="nftables", node_name="n")
    path = settings.layout.proxy_configuration
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    assert reset._proxy_configuration(settings).mode == "nftables"
