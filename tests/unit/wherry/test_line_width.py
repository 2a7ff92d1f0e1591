"""Output of checks fits 80 columns without a cluster, and paths and commands in it stay in one piece."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kube import pki
from kube.clock import SYSTEM
from tests.unit.wherry.test_upgrade_check import CASES, facts
from wherry import check, output, upgrade_check
from wherry.certs_commands import COLUMNS as CERTIFICATES
from wherry.expiry import Found
from wherry.finding import Finding
from wherry.main import app
from wherry.settings import Settings
from wherry.upgrade_check import rows
from wherry.upgrade_facts import Member
from wherry.wrapping import WIDTH, beside, wrapped

COMMAND = "`kubectl get widgets.example.com --all-namespaces -o json | kubectl replace -f -`"
LONG = (
    f"a sentence of some length about what was found in this place, which {COMMAND} repairs, and more words behind it"
)


def fit(lines: list[str]) -> None:
    """Check that only lines of one piece are longer than 80 columns, and that backquotes are not separated."""
    for line in lines:
        assert line.count("`") % 2 == 0, line
        assert len(line) <= WIDTH or " " not in re.sub(r"`[^`]*`", "", line).strip(), line


def test_a_command_in_backquotes_is_not_broken_and_no_word_is_lost() -> None:
    for indent in (0, 8, 31, 60):
        found = wrapped(LONG, indent)
        fit(found)
        assert len(found) > 1 and COMMAND in "\n".join(found)
        assert " ".join(line.strip() for line in found) == LONG
    assert beside("error   ", "short") == ["error   short"]
    assert beside("error   ", "") == ["error"]
    path = f"/{'x' * 75}"
    assert beside("error   ", path) == ["error", f"    {path}"]


def upgrade_rows() -> Iterator[Any]:
    yield from rows(facts(), ("the file has a problem that is described at some length, with `a command to run here`",))
    for changes, _, _, _ in CASES:
        yield from rows(facts(**changes))
    yield from rows(facts(members=[Member("m:1", "v1.36.0", (("endpoints.v1", ""), ("b.v1", "1.38")))]))
    yield from rows(facts(definitions=[("widgets.example.com", "v1beta1", False)]))
    yield from rows(facts(own=False, unavailable=["v1beta1.metrics.k8s.io"], problem=LONG))


def test_the_check_before_an_upgrade_fits() -> None:
    found = list(upgrade_rows())
    lines = list(upgrade_check.lines(found))
    fit(lines)
    assert lines[0].split() == ["RESULT", "CHECK", "FOUND"]
    shown = " ".join(line.strip() for line in lines)
    for row in found:
        assert row.found in shown and row.fix in shown


def test_a_row_with_control_characters_stays_a_row() -> None:
    lines = list(upgrade_check.lines([upgrade_check.Row("error", "members", "x\x1b[2K\ny", "a\tb")]))
    assert lines[1:] == [r"error    members   x\x1b[2K\ny", r"                   fix: a\tb"]


def test_the_check_of_a_machine_fits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = [
        Finding("ok", "port 10259 is free for the scheduler's metrics"),
        Finding("warning", LONG, "make room: 2 GiB or more"),
        Finding("error", "runc is missing", LONG),
    ]
    monkeypatch.setattr(check, "findings", lambda settings, *, running: found)
    done = CliRunner().invoke(app, ["check", "--prefix", str(tmp_path)])
    assert done.exit_code == 1
    lines = done.output.splitlines()
    fit(lines)
    assert lines[0] == "ok      port 10259 is free for the scheduler's metrics"
    assert "        → make room: 2 GiB or more" in lines
    shown = " ".join(line.strip() for line in lines)
    assert all(each.what in shown and each.fix in shown for each in found)


def test_the_check_of_certificates_fits() -> None:
    layout = Settings().layout
    certificate = pki.new_ca("kubernetes-front-proxy-ca", SYSTEM.now()).certificate
    names = ("apiserver-kubelet-client.crt", "front-proxy-client.crt", "service-account-ca.crt")
    paths = [*(layout.pki / name for name in names), layout.kubelet / "pki" / "kubelet-client-current.pem"]
    fit(output.table(CERTIFICATES, [Found(path, certificate) for path in paths]))
