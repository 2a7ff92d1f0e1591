"""Completion of the command line, as the shells ask for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

WHERRY = Path(sys.executable).with_name("wherry")


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [WHERRY, *arguments], env={**os.environ, **environment}, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_printed(shell: str) -> None:
    found = run("completion", shell)
    assert found.returncode == 0 and f"complete_{shell}" in found.stdout
    assert shell != "zsh" or found.stdout.startswith("#compdef wherry\n")


def test_bash_completes_commands_and_options() -> None:
    script = f"""
        source <({WHERRY} completion bash)
        COMP_WORDS=(wherry "$@"); COMP_CWORD=$#; _wherry_completion {WHERRY}
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """

    def completed(*words: str) -> list[str]:
        command = ["bash", "-c", script, "bash", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.split()

    assert completed("sta") == ["status"]
    assert completed("token", "l") == ["list"]
    assert "--proxy-mode" in completed("up", "--proxy-m")
    assert completed("up", "--proxy-mode", "i") == ["iptables", "ipvs"]
    assert completed("logs", "net") == ["netproxy"] and completed("completion", "z") == ["zsh"]
    assert completed("image", "list", "-o", "") == ["table", "wide", "json", "yaml"]
    assert completed("help", "tok") == ["token"] and completed("help", "token", "cr") == ["create"]
    assert completed("up", "--disable", "") == ["local-path", "service-load-balancer", "metrics", "gateway"]


FAKE = """#!/bin/sh
# A kubectl that offers its arguments and its kubeconfig.
[ "$1" = __complete ] || exit 1
shift
echo "pods-$#	Pods."
for each; do [ -z "$each" ] || echo "$each-1"; done
echo "$KUBECONFIG"
echo 'evil$(touch /tmp/evil)'
echo :4
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder for PATH with a kubectl, beside the shells'."""
    (tmp_path / "kubectl").write_text(FAKE)
    (tmp_path / "kubectl").chmod(0o755)
    return tmp_path


def completions(shell: str, line: str, folder: Path) -> str:
    """Return what a shell gets for a line, as its script asks for it."""
    variables = {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "KUBECONFIG": "/of/user",
        "_WHERRY_COMPLETE": f"complete_{shell}",
    }
    if shell == "bash":
        words = line.split(" ")
        variables |= {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    return run(**variables, _TYPER_COMPLETE_ARGS=line, _TYPER_COMPLETE_FISH_ACTION="get-args").stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_arguments_of_kubectl_are_completed_by_kubectl(shell: str, folder: Path) -> None:
    found = completions(shell, "wherry kubectl -n apps get ", folder)
    assert "pods-4" in found and "get-1" in found and "/of/user" in found and "apps-1" in found
    assert "evil" not in found and "prefix" not in found
    assert ("Pods." in found) == (shell != "bash")
    assert "--al-1" in completions(shell, "wherry kubectl get pods --al", folder)


def test_kubectl_completes_its_commands_and_options_without_a_cluster(tmp_path: Path) -> None:
    if not shutil.which("kubectl"):
        pytest.skip("kubectl is not installed")
    line = f"wherry kubectl --prefix {tmp_path} rol"
    assert "rollout" in completions("bash", line, tmp_path).split()
    assert "--all-namespaces" in completions("fish", f"wherry kubectl --prefix {tmp_path} get --all-n", tmp_path)


@pytest.mark.parametrize("program", ["crictl", "ctr"])
@pytest.mark.parametrize("arguments", [["-h"], ["--help"], ["help"], ["images", "--help"]], ids=" ".join)
def test_the_help_of_another_program_needs_no_cluster(program: str, arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / program).write_text(f'#!/bin/sh\necho "help of {program}: $*"\n')
    (tmp_path / program).chmod(0o755)
    found = run(program, "--prefix", str(tmp_path), *arguments, PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert found.stdout == f"help of {program}: {' '.join(arguments)}\n"
    refused = run(program, "--prefix", str(tmp_path), "exec", "id", "-h", PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert refused.returncode == 1 and not refused.stdout


def test_another_shell_is_refused_with_those_that_work() -> None:
    found = run("completion", "tcsh")
    assert found.returncode == 2
    assert found.stderr == "wherry: there is no completion for tcsh: use bash, zsh or fish\n"
