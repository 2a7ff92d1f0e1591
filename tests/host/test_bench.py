"""Benchmarks that are stopped: they clean up, and their names and options are passed on."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAME = f"wherry-signals{os.getpid()}"
PROGRAM = f"""
import time
from bench import signals
from tests.support.host import host
signals.end_in_order()
with host("{NAME}"):
    print("made", flush=True)
    time.sleep(100)
"""
RECORD = """#!/bin/bash
if [[ $2 == compileall ]]; then exit; fi
trap 'sleep 0.3; echo cleaned >>"$RECORD"; exit 143' TERM
printf '%s\\n' "$*" >>"$RECORD"
echo started
if [[ -n ${WAIT-} ]]; then sleep 100 & wait; fi
"""


def namespaces() -> list[str]:
    return [path.name for path in Path("/var/run/netns").glob(f"{NAME}*")]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_has_a_benchmark_take_its_machines_away(number: signal.Signals) -> None:
    # As a script starts what is to run in the background: without SIGINT.
    argv = ["bash", "-c", 'trap "" INT; exec "$@"', "-", sys.executable, "-c", PROGRAM]
    with subprocess.Popen(argv, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE) as bench:
        assert bench.stdout is not None and bench.stdout.readline() == b"made\n"
        assert len(namespaces()) == 2
        for again in (number, number, signal.SIGTERM):
            bench.send_signal(again)
        assert bench.wait(60) == 128 + number
    assert namespaces() == []


def stubbed(folder: Path) -> tuple[list[str], dict[str, str]]:
    """Return scripts/bench beside a Python that records what it is started with."""
    for name, text in (("scripts/install", "#!/bin/sh\n"), ("venv/bin/python", RECORD)):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    shutil.copy(ROOT / "scripts/bench", folder / "scripts/bench")
    (folder / "bench").mkdir()
    for name in ("hostile", "soak", "store"):
        (folder / f"bench/{name}.py").touch()
    environment = {**os.environ, "VENV": str(folder / "venv"), "RECORD": str(folder / "record")}
    return [str(folder / "scripts/bench")], environment


def test_names_of_attacks_and_options_reach_the_benchmark(tmp_path: Path) -> None:
    argv, environment = stubbed(tmp_path)
    more = ["store", "burst", "hostile", "dns_silent_tcp", "low_large_json", "--seconds", "2"]
    subprocess.run([*argv, *more], env=environment, check=True, timeout=60)
    assert (tmp_path / "record").read_text().splitlines() == [
        "-m bench.store",
        "-m bench.hostile dns_silent_tcp low_large_json --seconds 2",
        "-m bench.cluster burst",
    ]


def test_options_after_the_soak_are_the_soaks(tmp_path: Path) -> None:
    argv, environment = stubbed(tmp_path)
    for more in (["soak", "--seconds", "3600"], ["soak", "store"]):
        subprocess.run([*argv, *more], env=environment, check=True, timeout=60)
    assert (tmp_path / "record").read_text().splitlines() == [
        "-m bench.soak --seconds 3600",
        "-m bench.soak",
        "-m bench.store",
    ]


def test_a_signal_to_the_script_ends_the_benchmark_and_begins_no_other(tmp_path: Path) -> None:
    argv, environment = stubbed(tmp_path)
    environment["WAIT"] = "yes"
    with subprocess.Popen([*argv, "store", "hostile"], env=environment, stdout=subprocess.PIPE) as script:
        assert script.stdout is not None and script.stdout.readline() == b"started\n"
        script.send_signal(signal.SIGTERM)
        assert script.wait(60) == 143
    assert (tmp_path / "record").read_text().splitlines() == ["-m bench.store", "cleaned"]
