"""scripts/install with the wheels of a bundle, on a copy of this machine that has no network: commands of docs/airgap.md."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.copied_machine import CopiedMachine, copied_machine

ROOT = Path(__file__).resolve().parents[2]
WHEELS = "/var/lib/wherry/wheels"
DOWNLOAD = re.compile(r"^    python3 (-m pip download .*)$", re.M)
"""Lines of docs/airgap.md."""
COPIED_LINE = re.compile(r"^    (install -D .*)$", re.M)


@pytest.fixture(scope="module")
def bundled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A bundle with the wheels that the page names, and its SHA-256."""
    folder = tmp_path_factory.mktemp("bundled")
    commands = DOWNLOAD.findall((ROOT / "docs/airgap.md").read_text())
    assert len(commands) == 2
    for words in commands:
        command = f"/usr/bin/python3 {words.replace(' --dest wheels', f' --dest {folder}/wheels')} --quiet"
        done = subprocess.run(command.split(), cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
        assert done.returncode == 0, done.stderr
    words = ["bundle", "create", str(folder / "airgap.tar"), *map(str, (folder / "wheels").iterdir())]
    done = wherry(words)
    assert done.returncode == 0, done.stderr
    return folder / "airgap.tar", done.stdout.strip()


def wherry(words: list[str]) -> subprocess.CompletedProcess[str]:
    program = "from wherry.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", program, *words], cwd=ROOT, capture_output=True, text=True, check=False
    )


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[CopiedMachine]:
    """A machine without network, Wherry and kubectl."""
    (tmp_path / "mounts").mkdir()
    shown = (ROOT, Path(sys.prefix).resolve())
    with copied_machine(tmp_path / "mounts", ["unshare", "--net"], shown=shown) as found:
        found.shell("rm -f $(type -ap kubectl); rm -rf /etc/pip.conf /etc/xdg/pip /opt/pypi* /opt/wheels")
        found.shell("mkdir -p /usr/share/bash-completion/completions /usr/share/zsh/vendor-completions")
        yield found


def install(machine: CopiedMachine) -> subprocess.CompletedProcess[str]:
    return machine.run(f"{ROOT}/scripts/install", check=False, timeout=280, PYTHONDONTWRITEBYTECODE="1")


def load(machine: CopiedMachine, bundle: tuple[Path, str]) -> None:
    command = [
        sys.executable,
        "-P",
        "-m",
        "wherry.main",
        "bundle",
        "load",
        machine.copy(bundle[0]),
        "--sha256",
        bundle[1],
    ]
    machine.run(*command, PYTHONPATH=str(ROOT), PYTHONDONTWRITEBYTECODE="1")


@pytest.mark.timeout(600)
def test_programs_completion_and_the_manual_are_installed_from_the_wheels_of_a_bundle(
    machine: CopiedMachine, bundled: tuple[Path, str]
) -> None:
    load(machine, bundled)
    machine.run("rm", "-rf", f"/root/{bundled[0].name}")
    done = install(machine)
    assert done.returncode == 0, done.stdout + done.stderr
    assert machine.run("/opt/wherry/bin/wherry", "--version").stdout.startswith("wherry ")
    assert "Client Version: v1." in machine.run("kubectl", "version", "--client", check=False).stdout
    completion = machine.run("cat", "/usr/share/bash-completion/completions/wherry").stdout
    assert completion == machine.run("/opt/wherry/bin/wherry", "completion", "bash").stdout != ""
    assert "#compdef wherry" in machine.run("cat", "/usr/share/zsh/vendor-completions/_wherry").stdout
    assert ".TH" in machine.run("cat", "/usr/local/share/man/man1/wherry.1").stdout
    # A second run repairs what is missing, and otherwise changes nothing.
    machine.shell("rm /usr/local/share/man/man1/wherry.1; echo mine >/usr/share/bash-completion/completions/wherry")
    assert (again := install(machine)).returncode == 0 and again.stdout == "", again.stderr
    assert machine.exists("/usr/local/share/man/man1/wherry.1")
    assert machine.run("cat", "/usr/share/bash-completion/completions/wherry").stdout == "mine\n"


@pytest.mark.timeout(600)
def test_a_changed_or_missing_wheel_ends_the_installation_with_what_to_do(
    machine: CopiedMachine, bundled: tuple[Path, str]
) -> None:
    load(machine, bundled)
    machine.shell(f"printf x >>$(echo {WHEELS}/shellingham-*)")
    done = install(machine)
    assert done.returncode == 1 and "DO NOT MATCH THE HASHES" in done.stderr
    machine.shell(f"rm {WHEELS}/shellingham-*")
    done = install(machine)
    assert done.returncode == 1 and "No matching distribution found for shellingham" in done.stderr
    assert f"where files are missing in {WHEELS}, load a bundle that has them, or remove the folder" in done.stderr
    assert not machine.exists("/opt/wherry/.installed")


def test_the_command_of_the_page_copies_the_wheels_that_the_sums_name_and_no_others(
    machine: CopiedMachine, bundled: tuple[Path, str]
) -> None:
    (command,) = COPIED_LINE.findall((ROOT / "docs/airgap.md").read_text())
    machine.shell(f"mkdir /root/bundle && tar -C /root/bundle --no-same-owner -xf {machine.copy(bundled[0])}")
    machine.shell("touch /root/bundle/wheels/evil-1-py3-none-any.whl")
    machine.shell(f"cd /root/bundle && {command}")
    placed = {Path(path).name for path in machine.files(WHEELS)}
    expected = {path.name for path in (bundled[0].parent / "wheels").iterdir()}
    assert placed == expected and len(placed) > 40


def test_debian_packages_that_cannot_be_had_are_named_with_the_cause(machine: CopiedMachine) -> None:
    machine.shell(
        "dpkg --remove --force-depends nftables; rm -rf /var/lib/apt/lists/*; rm -f /var/cache/apt/archives/nft*"
    )
    done = install(machine)
    assert done.returncode == 1 and done.stdout.splitlines()[-1].startswith("✗ install nftables (")
    assert re.search("^E: .*nftables", done.stderr, re.M) and "Reading " not in done.stderr
    assert done.stderr.endswith("see what apt-get said above; without access to package servers see docs/airgap.md\n")
