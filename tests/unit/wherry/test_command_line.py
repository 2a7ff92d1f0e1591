"""The command line: help that fits a terminal of 80 columns, output that is never cut, and errors in one sentence."""

from __future__ import annotations

import json
import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner

from kube.build import Build
from wherry import VERSION, images, output, tokens, versions
from wherry.command_options import options_of
from wherry.daemon_logs import command
from wherry.errors import WherryError
from wherry.images import COLUMNS as IMAGE_COLUMNS
from wherry.images import Image, parsed
from wherry.main import app
from wherry.membership import join
from wherry.output import Column
from wherry.settings import Settings
from wherry.up_command import up

WIDTH = 80


def commands(group: Any = None, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Return all commands with their words."""
    group = group or typer.main.get_command(app)
    yield words, group
    for name, found in getattr(group, "commands", {}).items():
        yield from commands(found, (*words, name))


ALL = dict(commands())
OWN_HELP = ("kubectl", "crictl", "ctr")
"""Commands whose options are all another program's."""


@pytest.mark.parametrize("words", [words for words in ALL if not words or words[0] not in OWN_HELP], ids=" ".join)
@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_fits_eighty_columns_and_cuts_nothing(words: tuple[str, ...], option: str) -> None:
    found = CliRunner().invoke(app, [*words, option], env={"COLUMNS": str(WIDTH)})
    assert found.exit_code == 0
    lines = [line for line in found.output.splitlines() if not line.startswith("Usage:")]
    assert lines and max(map(len, lines)) <= WIDTH
    assert not any(line.endswith("...") for line in lines) and "…" not in found.output
    for parameter in ALL[words].params:
        assert parameter.param_type_name == "argument" or max(parameter.opts, key=len) in found.output


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_every_option_has_a_text_that_is_a_sentence(words: tuple[str, ...]) -> None:
    for parameter in ALL[words].params:
        assert (parameter.help and parameter.help.endswith(".") and not parameter.help[0].islower()) or words == (), (
            parameter.name
        )


@pytest.mark.parametrize(
    "name", ["api_port", "pod_cidr", "max_pods", "proxy_mode", "store", "etcd_prefix", "load_balancer_ports"]
)
def test_the_default_in_a_text_is_the_settings(name: str) -> None:
    (option,) = (parameter for parameter in ALL["up",].params if parameter.name == name)
    assert f"Default: {getattr(Settings(), name)}." in option.help


def test_options_name_their_default() -> None:
    """Without one: `--unset`, and what a command line must have, or has not."""
    without = {"server", "token", "discovery-token-ca-cert-hash", "control-plane", "certificate-key"}
    assert {option.name for option in (options_of(up) | options_of(join)).values() if not option.default} == without
    (description,) = (each for each in ALL["token", "create"].params if each.name == "description")
    assert description.help.endswith("Default: none.")


def test_a_wrong_option_or_command_is_named_with_the_nearest_one() -> None:
    found = CliRunner().invoke(app, ["up", "--node-nam", "x"])
    assert found.exit_code == 2 and "No such option: --node-nam" in found.output and "--node-name" in found.output
    assert "Did you mean 'list'?" in CliRunner().invoke(app, ["token", "lst"]).output


def test_the_version_is_the_packages() -> None:
    found = CliRunner().invoke(app, ["--version"])
    assert found.exit_code == 0 and re.fullmatch(
        rf"wherry {re.escape(VERSION)} \(Kubernetes v1\.\d+\.\d+.*\)\n", found.output
    )


def test_the_package_runs_as_a_module(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["wherry", "--version"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("wherry", run_name="__main__")
    assert ended.value.code == 0 and capsys.readouterr().out == versions.line() + "\n"


def test_the_page_names_the_commands_without_a_prefix() -> None:
    text = (Path(__file__).resolve().parents[3] / "docs/wherry.md").read_text()
    without = [
        words[0]
        for words, command in ALL.items()
        if not hasattr(command, "commands") and not any("--prefix" in each.opts for each in command.params)
    ]
    named = re.search(r"(?s)Every command accepts `--prefix`, .*?; (.*?) do not\.", text)
    assert named is not None and sorted(re.findall("`(.*?)`", named[1])) == sorted(f"wherry {word}" for word in without)


def test_help_is_a_command_too() -> None:
    for words in ((), ("token",), ("token", "create"), ("up",)):
        found, same = CliRunner().invoke(app, ["help", *words]), CliRunner().invoke(app, [*words, "--help"])
        assert found.exit_code == 0 and found.output.split("Usage: ")[1].split()[0] == "wherry"
        assert found.output.splitlines()[3:] == same.output.splitlines()[3:]
    for words in (("tokn",), ("up", "more")):
        found = CliRunner().invoke(app, ["help", *words])
        assert str(found.exception) == f"there is no command {' '.join(words)}: `wherry help` lists them"


@pytest.mark.parametrize("format", ["json", "yaml"])
def test_versions_are_shown_also_without_a_cluster(format: str, tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["version", "-o", format, "--prefix", str(tmp_path)])
    shown = json.loads(found.output) if format == "json" else yaml.safe_load(found.output)
    assert shown["wherry"] == VERSION and shown["commit"]
    assert found.output.startswith("{" if format == "json" else f"wherry: {VERSION}\n"), "YAML is not JSON"
    assert shown["server"] == "not available: there is no cluster on this machine: `wherry up` makes one"


def test_the_commit_of_an_installation_without_git_is_unknown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(versions, "build", lambda: Build("0.2.0", "2026-01-01T00:00:00Z", "archive"))
    found = CliRunner().invoke(app, ["version", "-o", "json", "--prefix", str(tmp_path)])
    assert json.loads(found.output)["commit"] == "unknown"


# -- output ---------------------------------------------------------------------------------------------------------------
LONG = "x" * 200
ROWS = [{"name": "a", "note": LONG}, {"name": "bcd", "note": ""}]
SHOWN: list[Column[dict[str, str]]] = [
    Column("NAME", lambda row: row["name"]),
    Column("NOTE", lambda row: row["note"]),
    Column("SIZE", lambda row: str(len(row["note"])), wide=True),
]


def test_a_table_has_plain_columns_and_cuts_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    output.show(ROWS, SHOWN, "table", dict)
    assert capsys.readouterr().out == f"NAME   NOTE\na      {LONG}\nbcd\n"
    output.show(ROWS, SHOWN, "wide", dict)
    assert capsys.readouterr().out.splitlines()[2] == "bcd" + " " * (4 + 200 + 3) + "0"


def test_json_and_yaml_contain_all_rows(capsys: pytest.CaptureFixture[str]) -> None:
    output.show(ROWS, SHOWN, "json", dict)
    assert json.loads(capsys.readouterr().out) == ROWS
    output.show(ROWS, SHOWN, "yaml", dict)
    assert yaml.safe_load(capsys.readouterr().out) == ROWS
    output.show([], SHOWN, "json", dict)
    assert json.loads(capsys.readouterr().out) == []


WITH_FORMATS = [words for words, command in ALL.items() if any("-o" in each.opts for each in command.params)]


@pytest.mark.parametrize(
    "words",
    [words for words in WITH_FORMATS if words not in (("status",), ("why",), ("config", "print"))],
    ids=" ".join,
)
def test_an_unknown_format_is_refused_before_anything_is_done(words: tuple[str, ...]) -> None:
    found = CliRunner().invoke(app, [*words, "-o", "xml"])
    assert isinstance(found.exception, WherryError)
    assert str(found.exception) == "-o xml: use table, wide, json or yaml"


@pytest.mark.parametrize("words", WITH_FORMATS, ids=" ".join)
def test_formats_of_output_are_completed(words: tuple[str, ...]) -> None:
    command = ALL[words]
    (option,) = (each for each in command.params if "-o" in each.opts)
    known = {each.value for each in option.shell_complete(None, "")}
    assert known >= {"json", "yaml"} and all(name in option.help for name in known)


def test_control_characters_do_not_reach_a_terminal() -> None:
    """Names and messages may be a node's or a pod author's."""
    columns: list[Column[str]] = [Column("A", str)]
    assert output.table(columns, ["a\x1b]52;c;x\x07\nb é"]) == ["A", "a\\x1b]52;c;x\\x07\\nb é"]
    assert output.table(columns, ["x\x1b[2K"]) == ["A", "x\\x1b[2K"]


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (25 << 20, "25 MiB"), (3 << 40, "3072 GiB")]
)
def test_sizes_are_readable(number: int, text: str) -> None:
    assert output.size(number) == text


def test_columns_of_tokens_show_the_whole_token() -> None:
    (heading,) = (column for column in tokens.COLUMNS if column.heading == "TOKEN")
    assert not heading.wide


def test_a_line_about_an_image_is_read() -> None:
    line = (
        "docker.io/library/busybox:1 application/vnd.oci.image.manifest.v1+json "
        "sha256:0123 2.1 MiB linux/amd64,linux/arm64 io.cri-containerd.image=managed "
    )
    labels = frozenset({"io.cri-containerd.image"})
    assert parsed(line) == Image(
        "docker.io/library/busybox:1", "sha256:0123", "2.1 MiB", "linux/amd64,linux/arm64", labels
    )
    assert parsed("too short") is None
    assert [column.heading for column in IMAGE_COLUMNS if not column.wide] == ["NAME", "SIZE", "DIGEST"]


# -- logs -----------------------------------------------------------------------------------------------------------------
def test_logs_are_printed_from_the_files_of_an_installation_of_its_own(tmp_path: Path) -> None:
    settings = Settings(prefix=str(tmp_path))
    with pytest.raises(WherryError, match=r"there is no log in .* yet: `wherry up` starts the daemons"):
        command(settings, "", follow=False, tail=5)
    settings.layout.logs.mkdir(parents=True)
    for name in ("agent", "control"):
        (settings.layout.logs / f"{name}.log").touch()
    logs = settings.layout.logs
    assert command(settings, "agent", follow=True, tail=5) == ["tail", "-n", "5", "-F", str(logs / "agent.log")]
    assert command(settings, "", follow=False, tail=5)[3:] == [str(logs / "control.log"), str(logs / "agent.log")]
    with pytest.raises(
        WherryError, match="no daemon kubelet on this machine: use containerd, control, agent, netproxy"
    ):
        command(settings, "kubelet", follow=False, tail=5)


LISTED = [
    *(Image(name, f"sha256:{name[0]}", "1.0 MiB", "linux/amd64") for name in ("a:1", "b:1", "b:2", "c:1", "d:1")),
    *(Image(f"sha256:id-{digest}", f"sha256:{digest}", "1.0 MiB", "linux/amd64") for digest in "abce"),
    Image("a@sha256:a", "sha256:a", "1.0 MiB", "linux/amd64"),
]


async def test_images_that_containers_use_by_name_or_digest_are_not_unused(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"{image.name} type {image.digest} {image.size} {image.platforms} -\n" for image in LISTED]
    listed = "REF TYPE DIGEST SIZE PLATFORMS LABELS\n" + "".join(lines)
    answers = {"images": listed, "containers": "CONTAINER IMAGE RUNTIME\n1 b:1 runc\n2 x@sha256:c runc\n"}

    async def run(command: list[str], **options: object) -> object:
        return SimpleNamespace(stdout=answers[command[-2]])

    monkeypatch.setattr(images, "run", run)
    settings = Settings(sandbox_image="d:1")
    assert [image.digest for image in await images.unused(settings)] == ["sha256:a", "sha256:e"]
    assert "sha256:id-e" in [image.name for image in await images.unused(settings)]
    assert not [image.name for image in await images.listed(settings) if image.name.startswith("sha256:")]


@pytest.mark.parametrize(
    ("names", "removed"),
    [
        (["b:1"], ["b:1"]),
        (["b:1", "b:2"], ["b:1", "b:2", "sha256:id-b"]),
        (["a:1"], ["a:1", "sha256:id-a", "a@sha256:a"]),
        (["sha256:id-e"], ["sha256:id-e"]),
    ],
)
def test_with_the_last_tag_go_the_names_that_keep_an_image_on_the_disk(names: list[str], removed: list[str]) -> None:
    assert images.with_last_names(LISTED, names) == removed
