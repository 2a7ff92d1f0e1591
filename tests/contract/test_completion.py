"""Completion of the command line, as the shells ask for it."""

from __future__ import annotations

import os
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


def test_another_shell_is_refused_with_those_that_work() -> None:
    found = run("completion", "tcsh")
    assert found.returncode == 1
    assert found.stderr == "wherry: there is no completion for tcsh: use bash, zsh or fish\n"
