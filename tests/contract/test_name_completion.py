"""Completion of names that exist on an installation, asked for by a real bash and as zsh and fish ask."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.stopped_installation import install

WHERRY = Path(sys.executable).with_name("wherry")
CTR = """#!/bin/sh
echo 'REF TYPE DIGEST SIZE PLATFORMS LABELS'
for name in 127.0.0.1:5000/app:v1 docker.io/library/busybox:1 docker.io/library/busybox:2 'evil$(reboot)' sha256:1; do
  echo "$name type sha256:2 1 MiB linux/amd64 -"
done
"""
KUBECTL = """#!/bin/sh
# A kubectl that offers its arguments and its kubeconfig.
for each; do echo "$each/x"; done
echo "$KUBECONFIG"
echo :4
"""


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    settings = install(tmp_path / "machine")
    for folder, names in {
        settings.layout.snapshots: ("a.db", "b.db", ".hidden.db", "c.txt"),
        settings.layout.addons: ("board.yaml", "bad name.yaml"),
    }.items():
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            (folder / name).touch()
    return Path(settings.prefix)


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Return a folder for PATH with programs in place of the machine's own."""
    (folder := tmp_path / "bin").mkdir()
    for name, text in (("ctr", CTR), ("kubectl", KUBECTL)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


def environment(programs: Path) -> dict[str, str]:
    return {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "KUBECONFIG": "/a:/b"}


def asked(shell: str, line: str, programs: Path) -> str:
    """Return what is printed for a line that a shell completes at its end; nothing may be printed as an error."""
    words = line.split(" ")
    bash = {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    other = {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    done = subprocess.run(
        [WHERRY],
        env={**environment(programs), "_WHERRY_COMPLETE": f"complete_{shell}", **(bash if shell == "bash" else other)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert not done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("image rm ", ["127.0.0.1:5000/app:v1", "docker.io/library/busybox:1", "docker.io/library/busybox:2"]),
        ("image rm docker.io/library/busybox:1 docker", ["docker.io/library/busybox:2"]),
        ("image save a.tar 127", ["127.0.0.1:5000/app:v1"]),
        ("snapshot restore ", ["a.db", "b.db"]),
        ("snapshot delete a.db ", ["b.db"]),
        ("up --disable ", ["local-path", "service-load-balancer", "metrics", "gateway", "board"]),
        ("up --disable b", ["board"]),
        ("token delete ", []),  # the API server does not run
    ],
)
def test_names_are_offered(prefix: Path, programs: Path, words: str, names: list[str]) -> None:
    first, _, rest = words.partition(" ")
    group, _, rest = rest.partition(" ") if first != "up" else ("", "", rest)
    line = f"wherry {first} {group}{' ' if group else ''}--prefix {prefix} {rest}"
    assert asked("fish", line, programs).split() == names


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_is_offered_names_with_colons(prefix: Path, programs: Path, shell: str) -> None:
    found = asked(shell, f"wherry image rm --prefix {prefix} docker.io/", programs)
    assert found.count("docker.io/library/busybox") == 2 and "evil" not in found and "sha256" not in found


def test_objects_are_those_that_kubectl_offers_with_the_kubeconfigs_of_the_caller(programs: Path) -> None:
    found = asked("fish", "wherry why -n shop pod ", programs).split()
    assert found == ["__complete/x", "get/x", "--namespace=shop/x", "pod/x", "/x", "/a:/b"]
    assert "pod/w/x" in asked("fish", "wherry why pod/w", programs).split()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another account")
def test_another_account_than_root_is_offered_nothing_without_an_error(programs: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as place:  # whose folders another account may enter
        Path(place).chmod(0o755)
        prefix = Path(install(Path(place, "machine")).prefix)
        for words in ("snapshot restore", "token delete"):
            variables = {
                "_WHERRY_COMPLETE": "complete_fish",
                "_TYPER_COMPLETE_ARGS": f"wherry {words} --prefix {prefix} ",
                "_TYPER_COMPLETE_FISH_ACTION": "get-args",
            }
            done = subprocess.run(
                ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", str(WHERRY)],
                env={**environment(programs), **variables},
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert (done.stdout.strip(), done.stderr) == ("", "")


def test_a_runtime_that_does_not_answer_is_waited_for_some_seconds(prefix: Path, programs: Path) -> None:
    (programs / "ctr").write_text("#!/bin/sh\nexec sleep 60\n")
    began = time.monotonic()
    assert asked("fish", f"wherry image rm --prefix {prefix} ", programs).strip() == ""
    assert time.monotonic() - began < 15


@pytest.fixture
def typing(programs: Path, tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Return a function that types into a bash on a terminal, and returns the line after a tab."""
    (tmp_path / "rc").write_text(
        f"PS1='ready> '\nPATH={programs}:{WHERRY.parent}:$PATH\nsource <(wherry completion bash)\n"
    )
    terminal, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (25, 500))
    shell = subprocess.Popen(
        ["bash", "--noprofile", "--rcfile", str(tmp_path / "rc"), "-i"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "dumb"},
        start_new_session=True,
    )
    os.close(theirs)

    def until(text: str, seconds: float = 30.0) -> str:
        shown, end = "", time.monotonic() + seconds
        while text not in shown and time.monotonic() < end:
            if select.select([terminal], [], [], 0.2)[0]:
                shown += os.read(terminal, 65536).decode(errors="replace")
        assert text in shown, shown
        return shown

    def typed(line: str) -> str:
        os.write(terminal, f"{line}\t#end".encode())
        shown = until("#end").replace("\r", "").partition("#end")[0]
        os.write(terminal, b"\x15echo done$((1+1))\n")  # Ctrl-U deletes the line; a signal could be lost
        until("done2\r\nready> ")
        return shown

    try:
        until("ready> ")
        os.write(terminal, b"bind 'set bell-style none'\n")
        until("ready> ")
        yield typed
    finally:
        shell.kill()
        shell.wait()
        os.close(terminal)


def test_a_real_bash_completes_what_it_breaks_at_colons_and_equals_signs(
    typing: Callable[[str], str], prefix: Path
) -> None:
    start = f"wherry image rm --prefix {prefix}"
    assert typing(f"{start} 127.0.0.1:5000/a") == f"{start} 127.0.0.1:5000/app:v1 "
    assert typing(f"{start} docker.io/lib") == f"{start} docker.io/library/busybox:"
    assert typing(f"{start} 127.0.0.1:") == f"{start} 127.0.0.1:5000/app:v1 "
    assert typing("wherry up --proxy-mode=nf") == "wherry up --proxy-mode=nftables "
    assert typing(f"wherry snapshot restore --prefix={prefix} a") == f"wherry snapshot restore --prefix={prefix} a.db "
