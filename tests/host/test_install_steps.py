"""The steps of scripts/install: a line that is redrawn on a terminal, few lines in a log, and the output of what fails."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from pathlib import Path

STEPS = Path(__file__).resolve().parents[2] / "scripts/steps"
DOWNLOAD = """
mkdir "$step_folder/new"
download() {
    for number in 1 2 3; do
        head -c 2000000 /dev/zero >>"$step_folder/new/file"
        echo "  Collecting package-$number-with-a-name-that-is-longer-than-the-terminal-is-wide"
        sleep 0.6
    done
    rm "$step_folder/new/file"
}
"""


def script(text: str) -> list[str]:
    return ["bash", "-euo", "pipefail", "-c", f'source "$0"\n{text}', str(STEPS)]


def logged(text: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        script(text), capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **env}
    )


def on_terminal(text: str, columns: int) -> list[str]:
    """Return what a terminal of that width was given, in the order of its lines and what replaced them."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(script(text), stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs)
    os.close(theirs)
    data = b""
    with contextlib.suppress(OSError):  # the end of a terminal
        while piece := os.read(ours, 4096):
            data += piece
    os.close(ours)
    assert process.wait(60) == 0, data
    return [line.replace("\x1b[K", "") for line in re.split("[\r\n]+", data.decode()) if line.strip("\x1b[K")]


def test_a_terminal_shows_size_and_rate_while_a_step_runs_in_one_line() -> None:
    *running, last = on_terminal(f'{DOWNLOAD}step "$step_folder/new" download download', 60)
    assert len(running) >= 2 and all(line.startswith("… download (") and len(line) < 60 for line in running)
    assert any(re.match(r"… download \(\d\.\d MiB, \d\.\d MiB/s, \d\.\d s so far\): Coll", line) for line in running)
    assert re.fullmatch(r"✓ download \(\d\.\d MiB, \d\.\d MiB/s, \d\.\d s\)", last), last


def test_a_log_has_one_line_about_a_step_and_one_more_each_half_minute() -> None:
    done = logged(f'{DOWNLOAD}step "$step_folder/new" download download; step "" "say nothing" true')
    assert done.returncode == 0 and done.stderr == ""
    first, second = done.stdout.splitlines()
    assert re.fullmatch(r"✓ download \(\d\.\d MiB, \d\.\d MiB/s, \d\.\d s\)", first), first
    assert re.fullmatch(r"✓ say nothing \(\d\.\d s\)", second), second
    done = logged(
        f'{DOWNLOAD}step_log_microseconds=700000; step_log_width=70; step "$step_folder/new" download download'
    )
    *running, _ = done.stdout.splitlines()
    assert 1 <= len(running) <= 2 and all(line.startswith("… download (") and len(line) <= 72 for line in running)


def test_a_step_that_fails_shows_what_its_command_said_and_ends_with_its_status() -> None:
    fails = "fails() { printf 'Collecting a\\nGet:1 b\\nERROR: c\\n'; echo d >&2; return 7; }\n"
    done = logged(f'{fails}step "" "try it" fails || echo "status $?"')
    assert re.sub(r"\d+\.\d", "N", done.stdout) == "✗ try it (N s)\nstatus 7\n" and done.stderr == "ERROR: c\nd\n"


def test_nothing_is_left_behind_and_a_command_reads_no_input(tmp_path: Path) -> None:
    done = logged('step "" "read" cat; step "" "wait" sleep 0.7; ls -d "$step_folder"', TMPDIR=str(tmp_path))
    assert done.returncode == 0 and done.stdout.count("✓") == 2 and str(tmp_path) in done.stdout
    assert not list(tmp_path.iterdir())
