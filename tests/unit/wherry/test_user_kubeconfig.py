"""The end of `wherry up`: commands that the user at the terminal can run, and the kubeconfig they use."""

from __future__ import annotations

import io
import os
import pwd
from pathlib import Path

import pytest

from wherry import home_files, user_kubeconfig
from wherry.layout import Layout
from wherry.settings import Settings
from wherry.terminal import PlainConsole


class Place:
    """A machine's administrator's kubeconfig, and the home of a user."""

    def __init__(self, folder: Path) -> None:
        self.admin, self.target = folder / "admin.kubeconfig", folder / "home/.kube/config"
        self.target.parent.mkdir(parents=True)
        self.admin.write_bytes(b"now")
        self.printed = io.StringIO()

    def lines(self) -> list[str]:
        user_kubeconfig.offer(Settings())
        return self.printed.getvalue().splitlines()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    made, user = Place(tmp_path), pwd.getpwuid(os.getuid())
    monkeypatch.setattr(Layout, "admin_kubeconfig", made.admin)
    monkeypatch.setattr(home_files, "user_kubeconfig", lambda: (made.target, user))
    monkeypatch.setattr(user_kubeconfig, "console", PlainConsole(file=made.printed, width=20))
    monkeypatch.setenv("SUDO_USER", "jane")
    return made


def test_a_user_of_sudo_is_given_commands_with_sudo(place: Place) -> None:
    lines = place.lines()
    assert lines[-1] == ("sudo wherry status shows what runs, sudo wherry down stops it, sudo wherry reset removes it.")
    assert lines[1].startswith("kubectl is set up for ") and place.target.read_bytes() == b"now"
    assert not any("KUBECONFIG" in line for line in lines)


def test_a_user_with_another_kubeconfig_is_given_one_that_this_user_may_read(place: Place) -> None:
    place.target.write_bytes(b"another cluster's")
    lines = place.lines()
    assert lines[3:5] == [
        "  (umask 077; sudo wherry kubeconfig >~/.kube/wherry)",
        "  export KUBECONFIG=~/.kube/wherry",
    ]
    assert place.target.read_bytes() == b"another cluster's"


def test_root_uses_the_administrators_file_itself(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.target.write_bytes(b"another cluster's")
    monkeypatch.setenv("SUDO_USER", "root")
    lines = place.lines()
    assert lines[3] == f"  export KUBECONFIG={place.admin}" and lines[-1].startswith("wherry status shows")


def test_the_file_that_up_wrote_is_kept_current_and_no_other(place: Place) -> None:
    place.target.write_bytes(b"former")
    user_kubeconfig.update(Settings(), b"former")
    assert place.target.read_bytes() == b"now"
    for content, former in ((b"mine", b"former"), (b"", b"")):
        place.target.write_bytes(content)
        user_kubeconfig.update(Settings(), former)
        assert place.target.read_bytes() == content
