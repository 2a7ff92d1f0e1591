"""scripts/install and scripts/package on machines whose interpreter never frees interned strings."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHON = Path("/usr/bin/python3").resolve()
CHOOSE = 'root=$1; shift; source "$root/scripts/interpreter"; choose_python "$@"'


@pytest.fixture
def immortal(tmp_path: Path) -> Path:
    """An interpreter that counts references of interned strings as Python 3.12.1 does."""
    code = (
        "import runpy, sys; sys.getrefcount = lambda each: 0xffffffff; runpy.run_path(sys.argv[1], run_name='__main__')"
    )
    made, other = tmp_path / "immortal", tmp_path / "python"
    other.symlink_to(PYTHON)
    made.write_text(f'#!/bin/bash\n[[ $1 == -I ]] || exit 3\nexec {other} -I -c "{code}" "$2"\n')
    made.chmod(0o755)
    return made


def choose(*candidates: Path | str) -> subprocess.CompletedProcess[str]:
    command = ["bash", "-euo", "pipefail", "-c", CHOOSE, "bash", str(ROOT), *map(str, candidates)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_the_first_interpreter_that_frees_interned_strings_is_chosen(immortal: Path) -> None:
    assert choose(PYTHON, immortal).stdout == choose(immortal, "/nowhere", PYTHON).stdout == f"{PYTHON}\n"


def test_without_one_the_problem_of_the_first_is_shown(immortal: Path) -> None:
    done = choose("/nowhere", immortal)
    assert (done.returncode, done.stdout) == (1, "")
    assert "never frees interned strings" in done.stderr and "install Wherry with Python 3.11" in done.stderr
    assert "there is no /nowhere" in choose("/nowhere").stderr


def on_machine_with(interpreter: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command where the interpreter is all that Debian has, in a mount namespace of its own."""
    kept = interpreter.with_name("python")
    script = 'cp --remove-destination "$0" "$2" && mount --bind "$1" "$0" && shift 2 && exec "$@"'
    enter = ["unshare", "--mount", "bash", "-euc", script, str(PYTHON), str(interpreter), str(kept)]
    return subprocess.run([*enter, *command], capture_output=True, text=True, timeout=120, check=False)


def test_a_machine_without_one_is_left_as_it_is(immortal: Path, tmp_path: Path) -> None:
    made = tmp_path / "wherry"
    for command in ([f"{ROOT}/scripts/install", str(made)], [f"{ROOT}/scripts/package", "deb", "--output", str(made)]):
        done = on_machine_with(immortal, *command)
        assert done.returncode == 1 and not made.exists(), done.stdout
        assert "never frees interned strings" in done.stderr


def test_an_installation_with_such_an_interpreter_has_to_be_removed_first(immortal: Path, tmp_path: Path) -> None:
    made = tmp_path / "wherry"
    (made / "bin").mkdir(parents=True)
    (made / "bin/python").symlink_to(immortal)
    command = [f"{ROOT}/scripts/install", str(made)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1 and f"{made} was made with that interpreter: remove it first" in done.stderr
    assert [each.name for each in made.iterdir()] == ["bin"]
