"""The end of `wherry up`: the context in the user's kubeconfig, and commands that the user at the terminal can run."""

from __future__ import annotations

import contextlib
import io
import os
import pwd
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from kube import kubeconfig
from kube.kubeconfig import Access, render
from wherry import (
    addresses,
    check,
    cluster,
    containerd,
    daemons,
    home_files,
    reset,
    starting,
    tokens,
    up,
    user_kubeconfig,
)
from wherry.errors import WherryError
from wherry.layout import Layout
from wherry.main import app
from wherry.settings import Settings
from wherry.terminal import PlainConsole

OTHER = render(Access("https://work", b"other", b"c", b"k"), cluster="work", user="jane", context="work")


def admin(certificate: bytes = b"cert", port: int = 6443) -> str:
    return render(Access(f"https://10.0.0.1:{port}", b"ca", certificate, b"key"), user="kubernetes-admin")


class Place:
    """A machine's administrator's kubeconfig, and the home of a user."""

    def __init__(self, folder: Path) -> None:
        self.admin, self.target = folder / "admin.kubeconfig", folder / "home/.kube/config"
        self.others = {name: folder / name / ".kube/config" for name in ("root", "joe", "ann")}
        for file in (self.target, *self.others.values()):
            file.parent.mkdir(parents=True)
        self.admin.write_text(admin())
        self.printed = io.StringIO()

    def up(self, former: bytes = b"") -> list[str]:
        user_kubeconfig.offer(Settings(), former)
        return self.read()

    def read(self) -> list[str]:
        """Return the lines that were printed since the last call."""
        lines = self.printed.getvalue().splitlines()
        self.printed.seek(0)
        self.printed.truncate()
        return lines

    @property
    def copies(self) -> list[Path]:
        return sorted(self.target.parent.glob("config.*"))

    @property
    def contexts(self) -> list[str]:
        return [entry["name"] for entry in yaml.safe_load(self.target.read_text())["contexts"]]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    made, user = Place(tmp_path), pwd.getpwuid(os.getuid())
    monkeypatch.setattr(Layout, "admin_kubeconfig", made.admin)
    monkeypatch.setattr(Layout, "kubeconfig_holders", tmp_path / "holders")
    monkeypatch.setattr(home_files, "user_kubeconfig", lambda: (made.target, user))
    monkeypatch.setattr(home_files, "kubeconfig_of", lambda name: (path := made.others.get(name)) and (path, user))
    monkeypatch.setattr(user_kubeconfig, "console", PlainConsole(file=made.printed, width=20))
    monkeypatch.setenv("SUDO_USER", "jane")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    return made


def test_a_user_without_a_kubeconfig_is_given_one(place: Place) -> None:
    lines = place.up()
    assert lines[-1] == ("sudo wherry status shows what runs, sudo wherry down stops it, sudo wherry reset removes it.")
    assert lines[1].startswith("kubectl is set up for ") and lines[3] == "  kubectl get nodes -o wide"
    access = kubeconfig.load(place.target)
    assert (access.server, access.ca, access.certificate, access.key) == (
        "https://10.0.0.1:6443",
        b"ca",
        b"cert",
        b"key",
    )
    assert not any("KUBECONFIG" in line for line in lines) and place.copies == []


def test_a_user_with_another_kubeconfig_is_given_a_context_in_it_and_keeps_the_current_one(place: Place) -> None:
    place.target.write_text(OTHER)
    lines = place.up()
    assert lines[1] == f"{place.target} has the context wherry. Try:"
    assert lines[3] == "  kubectl config use-context wherry"
    assert place.contexts == ["work", "wherry"] and kubeconfig.load(place.target).server == "https://work"
    assert kubeconfig.load(place.target, "wherry").server == "https://10.0.0.1:6443"
    (copy,) = place.copies
    assert copy.read_text() == OTHER
    before = place.target.read_bytes()
    assert place.up() == lines and place.target.read_bytes() == before and place.copies == [copy]


def test_a_damaged_kubeconfig_is_left_alone_with_one_sentence_and_another_file_is_named(place: Place) -> None:
    place.target.write_text("a: [")
    lines = place.up()
    assert lines[1] == f"{place.target} is not changed: it is no kubeconfig: invalid YAML in line 1."
    assert lines[3:7] == [
        "The cluster is up. Try:",
        "",
        "  (umask 077; sudo wherry kubeconfig >~/.kube/wherry)",
        "  export KUBECONFIG=~/.kube/wherry",
    ]
    assert place.target.read_text() == "a: [" and place.copies == []
    place.target.write_bytes(b"\xff")
    assert place.up()[1] == f"{place.target} is not changed: it is no kubeconfig: it is not UTF-8."


def test_a_link_is_not_followed(place: Place, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text(OTHER)
    place.target.symlink_to(tmp_path / "elsewhere")
    assert place.up()[1] == f"{place.target} is not changed: it is a link."
    assert (tmp_path / "elsewhere").read_text() == OTHER


def test_root_uses_the_administrators_file_itself(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.target.write_text("a: [")
    monkeypatch.setenv("SUDO_USER", "root")
    lines = place.up()
    assert lines[5] == f"  export KUBECONFIG={place.admin}" and lines[-1].startswith("wherry status shows")


def test_a_variable_that_names_another_file_is_replaced_first(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/etc/wherry/admin.kubeconfig")
    assert place.up()[3:5] == [f"  export KUBECONFIG={place.target}", "  kubectl get nodes -o wide"]
    monkeypatch.setenv("KUBECONFIG", str(place.target))
    assert place.up()[3] == "  kubectl get nodes -o wide"


def test_an_installation_of_its_own_prefix_changes_no_home(place: Place) -> None:
    user_kubeconfig.offer(Settings(prefix="/tmp/x"))
    user_kubeconfig.update(Settings(prefix="/tmp/x"), b"")
    assert not place.target.exists() and f"  export KUBECONFIG={user_kubeconfig.OWN_FILE}" in place.read()
    place.up()
    user_kubeconfig.remove(Settings(prefix="/tmp/x"))
    assert place.target.exists()


def test_the_context_follows_the_administrators_kubeconfig(place: Place) -> None:
    place.target.write_text(OTHER)
    place.up()
    former = place.admin.read_bytes()
    place.admin.write_text(admin(b"new", 7443))
    user_kubeconfig.update(Settings(), former)
    access = kubeconfig.load(place.target, "wherry")
    assert (access.server, access.certificate) == ("https://10.0.0.1:7443", b"new")
    place.target.write_text(OTHER)
    user_kubeconfig.update(Settings(), former)  # `wherry certs renew` adds no context
    assert place.target.read_text() == OTHER
    place.target.unlink()
    user_kubeconfig.update(Settings(), former)
    assert not place.target.exists()


@pytest.mark.parametrize("user", [None, {}, {"client-certificate-data": "Y2VydA=="}, {"client-key-data": "b3RoZXI="}])
@pytest.mark.parametrize("had", [False, True])
def test_renewed_credentials_reach_nobody_who_did_not_have_the_former_ones(
    place: Place, user: dict[str, str] | None, *, had: bool
) -> None:
    """A sudoers file may allow `wherry certs renew` alone, and the cluster's CA is public."""
    former = place.admin.read_bytes() if had else b""
    place.up()
    document = yaml.safe_load(place.target.read_text())
    document["users"] = [] if user is None else [{"name": "wherry", "user": user}]
    place.target.write_text(yaml.safe_dump(document))
    place.admin.write_text(admin(b"new", 7443))
    user_kubeconfig.update(Settings(), former)
    found = yaml.safe_load(place.target.read_text())
    assert found["users"] == document["users"] and found["clusters"][0]["cluster"]["server"].endswith(":7443")


def renewed(place: Place) -> list[str]:
    """Renew the administrator's credentials, and return what is printed of the contexts."""
    former = place.admin.read_bytes()
    place.admin.write_text(render(Access("https://10.0.0.1:6443", b"ca", b"new", b"new key"), user="kubernetes-admin"))
    place.read()
    user_kubeconfig.update(Settings(), former)
    return place.read()


def test_renewed_credentials_reach_roots_own_file_and_those_that_earlier_calls_set_up(
    place: Place, tmp_path: Path
) -> None:
    place.up()
    for file in place.others.values():
        file.write_bytes(place.target.read_bytes())
    (tmp_path / "holders").write_text("gone\njoe\n")
    assert renewed(place) == [
        f"updated {file}: context wherry" for file in (place.target, place.others["root"], place.others["joe"])
    ]
    for file in (place.target, place.others["root"], place.others["joe"]):
        assert kubeconfig.load(file).key == b"new key"
    assert kubeconfig.load(place.others["ann"]).key == b"key"  # no call of `wherry up` has set it up


def test_the_account_that_up_sets_up_is_recorded_once(place: Place, tmp_path: Path) -> None:
    place.up()
    place.up()
    assert (tmp_path / "holders").read_text() == f"{pwd.getpwuid(os.getuid()).pw_name}\n"
    assert (tmp_path / "holders").stat().st_mode & 0o777 == 0o600


def test_contexts_that_cannot_be_updated_are_named_with_the_command(place: Place) -> None:
    place.up()
    place.others["root"].symlink_to(place.target)
    text = place.target.read_text().replace("a2V5", "b3RoZXI=")
    place.target.write_text(text)
    kept = f"{place.target} keeps the credentials of its context wherry, which were not the administrator's"
    command = "`sudo wherry kubeconfig` prints"
    assert [line for line in renewed(place) if line] == [
        f"{kept}: {command} those",
        f"{place.others['root']} is not changed: it is a link; {command} the present credentials.",
    ]


def test_a_folder_in_place_of_the_administrators_file_is_named_with_the_fix(place: Place) -> None:
    place.admin.unlink()
    place.admin.mkdir()
    with pytest.raises(WherryError) as refused:
        user_kubeconfig.present(Settings())
    fix = "remove it, then `wherry up` or `wherry certs renew` writes it again"
    assert str(refused.value) == f"{place.admin} is a folder: {fix}"


def test_reset_removes_the_contexts_of_all_and_copies_with_nothing_else(place: Place, tmp_path: Path) -> None:
    place.up()
    for name in ("root", "joe"):
        place.others[name].write_bytes(place.target.read_bytes())
    (tmp_path / "holders").write_text("joe\n")
    renewed(place)
    assert len(place.copies) == 1
    user_kubeconfig.remove(Settings())
    assert [path for file in (place.target, *place.others.values()) for path in file.parent.iterdir()] == []
    assert place.read() == []


def test_reset_names_a_copy_that_holds_other_entries(place: Place) -> None:
    place.target.write_text(OTHER)
    place.up()
    place.read()
    user_kubeconfig.remove(Settings())
    (copy,) = place.copies
    assert place.read() == ["", f"{copy} stays: it is {place.target} before the last change of Wherry's."]


def test_an_empty_kubeconfig_is_no_copy_of_a_missing_one(place: Place) -> None:
    place.target.write_bytes(b"")
    user_kubeconfig.update(Settings(), b"")
    assert place.target.read_bytes() == b""


def test_a_copy_of_the_administrators_file_that_an_earlier_version_wrote_gets_the_new_names(place: Place) -> None:
    place.target.write_text(admin())
    place.up()
    assert place.contexts == ["wherry"] and kubeconfig.load(place.target).certificate == b"cert"
    place.target.write_text(admin())
    former = place.admin.read_bytes()
    place.admin.write_text(admin(b"new"))
    user_kubeconfig.update(Settings(), former)
    assert kubeconfig.load(place.target).certificate == b"new"


def test_reset_removes_the_context_and_a_file_that_holds_nothing_else(place: Place) -> None:
    place.up()
    user_kubeconfig.remove(Settings())
    assert not place.target.exists() and place.copies == []
    place.target.write_text(OTHER)
    place.up()
    user_kubeconfig.remove(Settings())
    assert yaml.safe_load(place.target.read_text()) == yaml.safe_load(OTHER)
    place.target.write_text(admin())
    user_kubeconfig.remove(Settings())
    assert not place.target.exists()
    assert not any("is not changed" in line for line in place.read())
    place.target.write_text("")
    user_kubeconfig.remove(Settings())
    assert place.target.read_text() == ""


def test_reset_leaves_the_context_of_another_cluster_and_a_damaged_file(place: Place) -> None:
    place.up()
    place.admin.write_text(render(Access("https://10.0.0.1:6443", b"new ca", b"c", b"k")))
    before = place.target.read_bytes()
    user_kubeconfig.remove(Settings())
    assert place.target.read_bytes() == before
    place.read()
    place.target.write_text("a: [")
    user_kubeconfig.remove(Settings())
    assert place.target.read_text() == "a: [" and len([line for line in place.read() if line]) == 1
    place.admin.unlink()
    user_kubeconfig.remove(Settings())
    assert place.read() == []


@pytest.mark.parametrize("keep_data", [True, False])
def test_a_reset_that_keeps_the_data_keeps_the_context(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, keep_data: bool
) -> None:
    removed: list[Settings] = []
    monkeypatch.setattr(user_kubeconfig, "remove", removed.append)
    reset._remove_files(Settings(prefix=str(tmp_path)), keep_data=keep_data)
    assert bool(removed) is not keep_data


async def test_up_merges_the_kubeconfig_that_it_wrote_and_knows_the_former_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls: list[tuple[bytes, bool]] = []

    async def nothing(*arguments: Any, **options: Any) -> dict[str, int]:
        return {}

    @contextlib.asynccontextmanager
    async def connect(settings: Settings) -> AsyncIterator[None]:
        yield None

    def offer(settings: Settings, former: bytes) -> None:
        calls.append((former, b"certificate-authority-data" in settings.layout.admin_kubeconfig.read_bytes()))

    for module, name in ((daemons, "running"), (check, "prepare"), (starting, "start_member"), (tokens, "create")):
        monkeypatch.setattr(module, name, nothing)
    for module, name in ((check, "require"), (containerd, "write_configuration"), (up, "_print_how_to_join")):
        monkeypatch.setattr(module, name, lambda *arguments, **options: None)
    monkeypatch.setattr(addresses, "own_address", lambda: "192.0.2.1")
    monkeypatch.setattr(cluster, "admin", connect)
    monkeypatch.setattr(user_kubeconfig, "offer", offer)
    wanted = Settings(prefix=str(tmp_path), node_name="n1", node_ip="192.0.2.1")
    wanted.layout.etc.mkdir(parents=True)
    wanted.layout.admin_kubeconfig.write_bytes(b"former")
    await up.up(wanted)
    assert calls == [(b"former", True)]


def test_renewed_certificates_reach_the_context(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    settings = Settings(
        prefix=str(tmp_path),
        node_name="n1",
        node_ip="192.0.2.1",
        cluster_dns="10.96.0.10",
        runtime_endpoint="unix:///x",
    )
    settings.save()
    settings.layout.admin_kubeconfig.write_bytes(b"former")
    calls: list[bytes] = []
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(user_kubeconfig, "update", lambda settings, former: calls.append(former))
    done = CliRunner().invoke(app, ["certs", "renew", "--prefix", str(tmp_path)])
    assert done.exit_code == 0 and calls == [b"former"]
