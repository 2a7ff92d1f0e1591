"""Users whose browsers may connect to the page."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from wherry.ui import peers


@pytest.mark.parametrize(
    ("user", "sudo", "login", "wanted"),
    [
        (1000, "", "", {0, 1000}),
        (1000, "", "1001", {0, 1000, 1001}),
        (0, "1000", "", {0, 1000}),
        (0, "", "1000\n", {0, 1000}),
        (0, "", "4294967295\n", None),
        (0, "0", "0", None),
        (0, "x", "", None),
    ],
)
def test_a_person_who_became_root_is_known_by_sudo_or_the_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: int, sudo: str, login: str, wanted: set[int] | None
) -> None:
    file = tmp_path / "loginuid"
    if login:
        file.write_text(login)
    monkeypatch.setattr(peers, "_LOGIN", file)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setenv("SUDO_UID", sudo)
    assert peers.own_users() == wanted


def test_nobody_is_refused_where_the_person_is_not_known() -> None:
    with peers.connections_of(None) as admits:
        assert admits is None
