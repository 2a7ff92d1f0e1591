"""Addons as the command knows them: names that are disabled, and the list."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from control.controllers.addons.applyset import Parent, addon_identifier
from control.controllers.addons.folder import AddonFile
from tests.unit.wherry.test_config_file import merged
from wherry import addon_list, addons, file_modes, output
from wherry.addon_list import Addon
from wherry.control_settings import control_config
from wherry.errors import WherryError
from wherry.main import app
from wherry.option_checks import complete
from wherry.settings import Settings


def test_the_control_plane_has_what_is_not_disabled(tmp_path: Path) -> None:
    usual = control_config(complete(Settings(prefix=str(tmp_path)), "192.0.2.1"))
    assert usual.local_path_volumes and usual.resource_metrics and usual.service_load_balancer and usual.gateway
    assert usual.addons_dir == tmp_path / "var/lib/wherry/addons" and usual.disabled_addons == ()
    disabled = ["local-path", "metrics", "service-load-balancer", "gateway", "board"]
    config = control_config(complete(Settings(prefix=str(tmp_path), disable=disabled), "192.0.2.1"))
    assert not (config.local_path_volumes or config.resource_metrics or config.service_load_balancer or config.gateway)
    assert "board" in config.disabled_addons


def test_a_name_of_no_file_is_accepted_and_one_that_no_file_can_have_is_not() -> None:
    assert complete(Settings(disable=["later"]), "192.0.2.1").disable == ["later"]
    with pytest.raises(
        WherryError, match=r"^--disable board.yaml: .*it is local-path, service-load-balancer, metrics, gateway, or"
    ):
        complete(Settings(disable=["board.yaml"]), "192.0.2.1")


def test_a_name_that_no_addon_can_have_is_refused_without_a_warning(tmp_path: Path) -> None:
    assert addons.unknown(["*", "metrcs"], tmp_path) == [
        "--disable metrcs: there is no such addon; did you mean metrics?"
    ]


def test_an_error_in_the_file_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("node-ip: 192.0.2.1\ndisable: [A]\n")
    result = CliRunner().invoke(app, ["config", "validate", str(path), "--prefix", str(tmp_path)])
    assert result.exit_code == 1 and f"{path}:2: disable A: " in str(result.exception)
    assert merged(tmp_path, "disable: [metrics]").disable == ["metrics"]


def test_the_folder_is_closed_to_others_and_only_of_control_planes(tmp_path: Path) -> None:
    path = tmp_path / "var/lib/wherry/addons"
    assert [f.mode for f in file_modes.folders(Settings(prefix=str(tmp_path))) if f.path == path] == [0o750]
    worker = Settings(prefix=str(tmp_path), role="worker")
    assert path not in [folder.path for folder in file_modes.folders(worker)]


def file(name: str, problem: str = "") -> AddonFile:
    return AddonFile(name, Path(f"/addons/{name}.yaml"), (1,), problem)


def test_files_and_what_was_applied_are_listed_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    files = [file("applied"), file("new"), file("off"), file("open", "it is open: close it"), file("Bad", "rename it")]
    parents = [
        Parent("applied", file="applied.yaml", server="192.0.2.1", state="Applied", objects=3),
        Parent("gone", file="gone.yaml", server="192.0.2.2", state="Kept", message="m", objects=1),
    ]
    found = addon_list.merged(files, parents, ["off", "metrics"])
    assert [(addon.name, addon.state, addon.objects, addon.message) for addon in found] == [
        ("Bad", "Refused", None, "rename it"),
        ("applied", "Applied", 3, ""),
        ("gone", "Kept", 1, "m"),
        ("new", "Pending", None, ""),
        ("off", "Disabled", None, ""),
        ("open", "Refused", None, "it is open: close it"),
    ]
    output.show([Addon("metrics", "Enabled"), *found[1:3]], addon_list.COLUMNS, "table", addon_list.as_data)
    assert capsys.readouterr().out.splitlines() == [
        "NAME      FILE           OBJECTS   STATE     MESSAGE",
        "metrics   <built in>     -         Enabled   -",
        "applied   applied.yaml   3         Applied   -",
        "gone      gone.yaml      1         Kept      m",
    ]
    assert addon_list.as_data(found[1]) == {
        "name": "applied",
        "state": "Applied",
        "file": "applied.yaml",
        "objects": 3,
        "server": "192.0.2.1",
        "applySet": addon_identifier("applied"),
    }
