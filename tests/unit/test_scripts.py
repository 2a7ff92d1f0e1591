"""The project's shell scripts, which root may call in any folder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_PYTHON = re.compile(r"""(^|[\s"'/${(=])(python3?|pip)["'\s]""")
_MOVES = re.compile(r"cd (/|\"\$\(dirname \"\$0\"\)/\.\.\")( |$)")


def scripts() -> list[Path]:
    files = [*(ROOT / "scripts").iterdir(), *(ROOT / "vagrant").iterdir(), ROOT / ".ci" / "run"]
    return sorted(path for path in files if path.is_file() and b"bash" in path.read_bytes().partition(b"\n")[0])


def unsafe(text: str) -> str | None:
    """Return the first line that starts Python before the script has left its caller's folder."""
    for line in text.splitlines():
        if _MOVES.match(line):
            return None
        if not line.lstrip().startswith("#") and _PYTHON.search(line.partition(" # ")[0]) and " -P " not in line:
            if not re.match(r"\w+=\S+$", line):  # a name of the program
                return line
    return None


def test_packaging_writes_to_its_output_folder_with_mv_alone() -> None:
    """The folder may be somebody else's: what opens a file there by its name may follow a link (tests/contract)."""
    text = (ROOT / "scripts" / "package").read_text()
    (function,) = re.findall(r"^deliver\(\).*?^}$", text, re.MULTILINE | re.DOTALL)
    assert [line for line in text.replace(function, "").splitlines() if "$output" in line] == [
        'output=$(realpath -m "$output")'
    ]


@pytest.mark.parametrize("script", scripts(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_script_runs_modules_of_its_callers_folder(script: Path) -> None:
    """Python puts the current folder, which may be anybody's, before its own modules for -c and -m."""
    assert unsafe(script.read_text()) is None


def test_such_a_script_is_found() -> None:
    start = "set -euo pipefail\npython=/usr/bin/python3\n"
    assert unsafe(start + "cd / # why\n$python -m venv x\n") is None
    assert unsafe(start + 'cd "$(dirname "$0")/.."\npip install x\n') is None
    assert unsafe(start + "cd /tmp\n$python -m venv x\n") == "$python -m venv x"
    assert unsafe(start + "build() {\n    $python -m venv x\n}\ncd /\n") == "    $python -m venv x"
    assert unsafe('exec "$venv/bin/python" -P -m wherry.main\n') is None
