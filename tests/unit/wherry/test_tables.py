"""Every table of every command, on a terminal of 80 columns and in a pipe: nothing is cut, and no row is broken."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube import bootstrap_tokens, pki
from kube.clock import SYSTEM
from tests.unit.wherry.test_command_line import WITH_FORMATS
from tests.unit.wherry.test_line_width import fit, upgrade_rows
from tests.unit.wherry.test_status import status
from tests.unit.wherry.test_upgrade_check import facts
from wherry import (
    addon_list,
    certs_commands,
    check,
    check_command,
    cluster,
    containerd,
    expiry,
    images,
    main,
    snapshot_catalog,
    status_text,
    tokens,
    upgrade_check,
    upgrade_facts,
    versions,
)
from wherry import status as status_module
from wherry.addon_list import Addon
from wherry.expiry import Found
from wherry.finding import Finding
from wherry.image_pulls import HINT
from wherry.images import Image
from wherry.output import Column
from wherry.security import gather, report
from wherry.security import table as security_table
from wherry.security.rows import Check, CheckResult
from wherry.settings import Settings
from wherry.snapshot_catalog import Entry
from wherry.status import Node
from wherry.tokens import Known
from wherry.wrapping import WIDTH

LONG = "/".join(["a-name-of-many-characters"] * 8)
SENTENCE = (
    "a sentence about what was found, which is longer than a line of eighty columns, and `kubectl get widgets -A`"
)
CA = pki.new_ca("kubernetes", SYSTEM.now()).certificate


@dataclass
class Case:
    """A command, the function that gets its data, and its table if it has one of columns."""

    words: str
    patched: tuple[Any, str]
    data: Any
    columns: Sequence[Column[Any]] = ()
    rows: list[Any] = field(default_factory=list)


def known(description: str) -> Known:
    expires = datetime(2036, 1, 2, 3, 4, 5, tzinfo=UTC)
    return Known(bootstrap_tokens.new(), expires, ("authentication", "signing"), (LONG,), description)


TOKENS = [known("made by wherry up"), known(LONG)]
IMAGES = [Image(f"registry.example/{LONG}:1", f"sha256:{'0' * 64}", "1.5 MiB", "linux/amd64,linux/arm64")]
SNAPSHOTS = [Entry(f"{LONG}.db", f"/mnt/{LONG}.db", 1.8e9, 1 << 30, 70_000, 9_000_000), Entry("b", "s3://b", 1e9, 1)]
ADDONS = [Addon("local-path", "Enabled"), Addon("mine", "Failed", "mine.yaml", 12, SENTENCE, LONG, LONG)]
CERTIFICATES = [Found(Path("/etc", LONG), CA), Found(Path("/a.crt"), CA)]
FINDINGS = [Finding("ok", f"runc is {LONG}"), Finding("error", SENTENCE, SENTENCE)]
CHECKS = [
    (Check("1.1.1", "Another title", lambda facts: CheckResult("PASS")), CheckResult("FAIL", SENTENCE, SENTENCE)),
    (Check("1.1.2", "A title", lambda facts: CheckResult("PASS")), CheckResult("PASS")),
]
STATUS = status(
    nodes=[
        Node("n1", False, SENTENCE, "v1.36.2", "192.0.2.1", "Debian GNU/Linux 12 (bookworm)", "6.1.0-32-amd64", LONG)
    ],
    certificates=[SENTENCE],
)
VERSIONS = {"wherry": "0.2.0", "server": f"not available: {SENTENCE}"}
CASES = [
    Case("token list", (tokens, "known"), TOKENS, tokens.COLUMNS, TOKENS),
    Case("image list", (images, "listed"), IMAGES, images.COLUMNS, IMAGES),
    Case("snapshot list", (snapshot_catalog, "entries"), SNAPSHOTS, snapshot_catalog.COLUMNS, SNAPSHOTS),
    Case("addons list", (addon_list, "listed"), ADDONS, addon_list.COLUMNS, ADDONS),
    Case("certs check", (expiry, "certificates"), CERTIFICATES, certs_commands.COLUMNS, CERTIFICATES),
    Case("check", (check, "findings"), FINDINGS, check_command.COLUMNS, FINDINGS),
    Case("check --security", (security_table, "results"), CHECKS, report.COLUMNS, CHECKS),
    Case("status", (status_module, "collect"), STATUS, status_text.DAEMONS, STATUS.daemons),
    Case("upgrade --check", (upgrade_facts, "collect"), facts()),
    Case("version", (versions, "collect"), VERSIONS),
]
ASYNCHRONOUS = (tokens, images, snapshot_catalog, addon_list, status_module, upgrade_facts, versions)
WRAPPED = ("check", "check --security", "upgrade --check")
"""Commands whose rows have several lines with `-o table`."""


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Case, str, bool], list[str]]:
    """Return a function that runs a command in this process, and returns what a terminal or a pipe got."""

    async def nothing(*arguments: Any, **options: Any) -> None:
        return None

    @contextlib.asynccontextmanager
    async def connect(settings: Settings) -> AsyncIterator[None]:
        yield None

    for name, value in {"COLUMNS": str(WIDTH), "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)
    settings = Settings(prefix=str(tmp_path), node_name="n1", node_ip="192.0.2.1")
    settings.layout.etc.mkdir(parents=True)
    settings.save()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(cluster, "admin", connect)
    monkeypatch.setattr(gather, "facts", nothing)
    monkeypatch.setattr(containerd, "require_running", lambda settings: None)
    monkeypatch.setattr(expiry, "authorities", lambda settings: [])
    monkeypatch.setattr(upgrade_check, "rows", lambda *arguments: upgrade_rows())

    def do(case: Case, format: str, terminal: bool) -> list[str]:
        async def later(*arguments: Any, **options: Any) -> Any:
            return case.data

        now = lambda *arguments, **options: case.data  # noqa: E731
        monkeypatch.setattr(*case.patched, later if case.patched[0] in ASYNCHRONOUS else now)
        argv = ["wherry", *case.words.split(), "--prefix", str(tmp_path), *(["-o", format] if format else [])]
        monkeypatch.setattr(sys, "argv", argv)
        found = _output(monkeypatch, terminal=terminal)
        assert found, case.words
        return found

    return do


def _output(monkeypatch: pytest.MonkeyPatch, *, terminal: bool) -> list[str]:
    source, sink = pty.openpty() if terminal else os.pipe()
    received = bytearray()

    def receive() -> None:
        with contextlib.suppress(OSError):  # the end of a terminal
            while piece := os.read(source, 1 << 16):
                received.extend(piece)

    reader = threading.Thread(target=receive)
    reader.start()
    try:
        with os.fdopen(sink, "w") as stdout, monkeypatch.context() as patched, contextlib.suppress(SystemExit):
            patched.setattr(sys, "stdout", stdout)
            assert stdout.isatty() is terminal
            main.main()
    finally:
        reader.join(10)
        os.close(source)
    return re.sub(r"\x1b\[[0-9;]*m", "", received.decode()).splitlines()


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "pipe"])
@pytest.mark.parametrize("format", ["", "wide"], ids=["table", "wide"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.words)
def test_no_cell_is_cut_and_no_row_is_broken(
    run: Callable[[Case, str, bool], list[str]], case: Case, format: str, terminal: bool
) -> None:
    lines = run(case, format, terminal)
    assert not any("…" in line or line.endswith(" ") for line in lines)
    if format or case.words not in WRAPPED:
        shown = [column for column in case.columns if format or not column.wide]
        for cells in ([column.text(row) for column in shown] for row in case.rows):
            assert any(all(cell in line for cell in cells) for line in lines), cells
        for column in shown:
            assert any(column.heading in line for line in lines)
    if case.words in WRAPPED and not format:
        fit(lines)


@pytest.mark.parametrize("format", ["", "wide"], ids=["table", "wide"])
@pytest.mark.parametrize("case", [case for case in CASES if case.words != "status"], ids=lambda case: case.words)
def test_a_terminal_and_a_pipe_get_the_same_table(
    run: Callable[[Case, str, bool], list[str]], case: Case, format: str
) -> None:
    assert run(case, format, True) == run(case, format, False)


@pytest.mark.parametrize("format", ["", "wide"], ids=["text", "wide"])
def test_sentences_of_the_status_are_broken_on_a_terminal_only_and_not_within_a_command(
    run: Callable[[Case, str, bool], list[str]], format: str
) -> None:
    (case,) = (case for case in CASES if case.words == "status")
    tables = {
        str(line) for line in status_text.lines(STATUS, wide=bool(format)) if isinstance(line, status_text.TableLine)
    }
    terminal, pipe = run(case, format, True), run(case, format, False)
    assert f"  {HINT}" in pipe and SENTENCE in pipe and tables <= set(pipe) & set(terminal)
    fit([line for line in terminal if line not in tables])
    assert " ".join(terminal).split() == " ".join(pipe).split()
    assert any("`wherry bundle load FILE`" in line for line in terminal)


def test_the_usual_tables_fit_eighty_columns(run: Callable[[Case, str, bool], list[str]]) -> None:
    usual = [
        Case("token list", (tokens, "known"), TOKENS[:1]),
        Case(
            "addons list", (addon_list, "listed"), [Addon("local-path", "Enabled"), Addon("a", "Applied", "a.yaml", 9)]
        ),
        Case("status", (status_module, "collect"), status()),
    ]
    for case in usual:
        fit(run(case, "", False) if case.words != "status" else run(case, "", True))


def fields(data: Any) -> Iterator[str]:
    """Yield the names of fields in JSON data."""
    if isinstance(data, dict):
        for name, value in data.items():
            yield name
            if name not in ("phases", "summary"):  # whose keys are values of others
                yield from fields(value)
    for item in data if isinstance(data, list) else []:
        yield from fields(item)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.words)
def test_json_and_yaml_have_the_same_data_with_names_in_camel_case(
    run: Callable[[Case, str, bool], list[str]], case: Case
) -> None:
    data = json.loads("\n".join(run(case, "json", True)))
    assert yaml.safe_load("\n".join(run(case, "yaml", False))) == data
    names = set(fields(data))
    assert names and all(re.fullmatch("[a-z]+([A-Z][a-z]*)*", name) for name in names), names
    if case.rows and isinstance(data, list):
        assert len(data) == len(case.rows)


def test_every_command_with_formats_is_rendered() -> None:
    rendered = {tuple(word for word in case.words.split() if word[0] != "-") for case in CASES}
    assert rendered == set(WITH_FORMATS) - {("config", "print"), ("why",)}  # which have no table
