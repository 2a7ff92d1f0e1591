"""`wherry kubectl`: selection of the program and the kubeconfig."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from wherry import kubectl
from wherry.errors import WherryError
from wherry.main import app


@pytest.fixture
def admin(tmp_path: Path) -> Path:
    path = tmp_path / "etc/wherry/admin.kubeconfig"
    path.parent.mkdir(parents=True)
    path.write_text("")
    return path


def test_the_administrators_kubeconfig_is_used_where_the_caller_names_none(admin: Path) -> None:
    assert kubectl.environment(["get", "pods"], admin, {"A": "b"}) == {"A": "b", "KUBECONFIG": str(admin)}


@pytest.mark.parametrize("arguments", [["--kubeconfig", "x", "get", "pods"], ["get", "pods", "--kubeconfig=x"]])
def test_a_kubeconfig_of_the_callers_is_left_alone(admin: Path, arguments: list[str]) -> None:
    assert kubectl.environment(arguments, admin, {}) == {}
    assert kubectl.environment(["get", "pods"], admin, {"KUBECONFIG": "x"}) == {"KUBECONFIG": "x"}


def test_an_option_of_the_command_that_a_pod_runs_is_none_of_kubectls(admin: Path) -> None:
    arguments = ["exec", "p", "--", "tool", "--kubeconfig=x", "--help"]
    assert kubectl.environment(arguments, admin, {})["KUBECONFIG"] == str(admin)


def test_a_user_who_may_not_read_the_administrators_kubeconfig_is_told_to_use_sudo(
    admin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: path != admin)
    with pytest.raises(WherryError) as found:
        kubectl.environment(["get", "pods"], admin, {})
    assert str(found.value) == f"{admin} is only for root: run it with sudo, or name a kubeconfig in KUBECONFIG"
    assert kubectl.environment(["get", "pods"], admin, {"KUBECONFIG": "x"}) == {"KUBECONFIG": "x"}


def test_without_a_cluster_only_commands_without_server_requests_run(tmp_path: Path) -> None:
    for local in ([], ["version", "--client"], ["get", "--help"], ["completion", "bash"]):
        assert kubectl.environment(local, tmp_path / "none", {}) == {}
    with pytest.raises(WherryError, match="name a kubeconfig in KUBECONFIG"):
        kubectl.environment(["get", "pods"], tmp_path / "none", {})


def test_the_program_that_was_installed_for_wherry_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, other = tmp_path / "own", tmp_path / "bin/kubectl"
    for path in (own, other):
        path.parent.mkdir(exist_ok=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", str(other.parent))
    assert kubectl.program(own) == str(own)
    own.unlink()
    assert kubectl.program(own) == str(other)
    other.unlink()
    with pytest.raises(WherryError, match="scripts/install"):
        kubectl.program(own)


def test_all_arguments_are_kubectls(admin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole command: a prefix before kubectl's own arguments is Wherry's, one among them is kubectl's."""
    ran: list[tuple[str, list[str], str]] = []
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setattr(kubectl, "program", lambda: "/bin/kubectl")
    monkeypatch.setattr(os, "execve", lambda path, argv, env: ran.append((path, argv, env["KUBECONFIG"])))
    arguments = ["logs", "--prefix", "-n", "kube-system", "p", "--", "--help"]
    CliRunner().invoke(app, ["kubectl", "--prefix", str(admin.parents[2]), *arguments], catch_exceptions=False)
    assert ran == [("/bin/kubectl", ["kubectl", *arguments], str(admin))]
