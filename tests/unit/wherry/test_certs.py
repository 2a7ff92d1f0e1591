"""`wherry certs`: the expiry of certificates, and the renewal of those that end soon."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kube import kubeconfig, pki
from kube.clock import SYSTEM
from wherry import configuration, daemons, expiry, units
from wherry.errors import WherryError
from wherry.main import app
from wherry.settings import Settings

NONE = "no certificate ends soon: `wherry certs renew --all` renews all"


@pytest.fixture
def installed(tmp_path: Path) -> Settings:
    """An installation as `wherry up` leaves it, without anything running."""
    settings = Settings(
        prefix=str(tmp_path), node_name="n", node_ip="192.0.2.1", cluster_dns="10.96.0.10", runtime_endpoint="unix:///x"
    )
    settings.save()
    configuration.write_all(settings)
    return settings


def certs(settings: Settings, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["certs", *arguments, "--prefix", settings.prefix])


def test_certificates_are_shown_with_their_end(installed: Settings) -> None:
    found = certs(installed, "check", "-o", "json")
    assert found.exit_code == 0
    shown = {Path(entry["path"]).name: entry["subject"] for entry in json.loads(found.output)}
    assert shown["apiserver.crt"] == "kube-apiserver" and shown["admin.kubeconfig"] == "kubernetes-admin"
    assert shown["agent.kubeconfig"] == "system:node:n"
    assert {name for name in shown if name.endswith("ca.crt")} >= {"ca.crt", "front-proxy-ca.crt"}
    heading, *lines = certs(installed, "check").output.splitlines()
    assert heading.split() == ["PATH", "EXPIRES", "LEFT"] and len(lines) == len(shown)


def test_daemons_with_a_replaced_kubeconfig_are_restarted_also_by_the_command_after_an_interrupted_one(
    installed: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    restarted, interrupted = list[list[str]](), [True]

    async def running(settings: Settings) -> dict[str, int]:
        return {"containerd": 1, "control": 2, "agent": 3, "netproxy": 4, "dns": 0}

    async def restart(names: Iterable[str]) -> None:
        if interrupted.pop():
            raise KeyboardInterrupt
        restarted.append(list(names))

    monkeypatch.setattr(daemons, "uses_systemd", lambda settings: True)
    monkeypatch.setattr(daemons, "running", running)
    monkeypatch.setattr(units, "restart", restart)
    certs(installed, "renew")
    assert interrupted, "no daemon has read the first kubeconfigs before they were written"
    installed.layout.agent_kubeconfig.write_text("ended")
    assert certs(installed, "renew").exit_code != 0 and not interrupted
    interrupted.append(False)
    assert certs(installed, "renew").output.splitlines() == [NONE, "restarted agent, netproxy"]
    assert restarted == [["agent", "netproxy"]]
    assert certs(installed, "renew").output.splitlines() == [NONE]


def test_one_that_ends_soon_is_renewed_and_no_other(installed: Settings) -> None:
    pki_folder, now = installed.layout.pki, SYSTEM.now()
    ca = pki.KeyPair.load(pki_folder, "ca")
    usages = (pki.SERVER,)
    short = pki.issue(ca, "kube-apiserver", usages=usages, sans=["n"], now=now, lifetime=timedelta(days=5, hours=1))
    short.save(pki_folder, "apiserver")
    found = certs(installed, "check")
    path = pki_folder / "apiserver.crt"
    assert found.exit_code == 1
    assert f"the certificate in {path} ends in 5 days: `wherry certs renew` renews it" in " ".join(
        found.output.split("\n")
    )
    renewed = certs(installed, "renew")
    assert renewed.exit_code == 0 and renewed.output.startswith(f"renewed {path}: expires ")
    assert len(renewed.output.splitlines()) == 1
    assert certs(installed, "check").exit_code == 0
    assert certs(installed, "renew").output == f"{NONE}\n"


def test_all_are_renewed_on_request_and_cas_kept_a_line_each(installed: Settings) -> None:
    before = {found.path: found.certificate for found in expiry.certificates(installed)}
    authorities = list(expiry.authorities(installed))
    renewed = certs(installed, "renew", "--all")
    assert renewed.exit_code == 0
    after = {found.path: found.certificate for found in expiry.certificates(installed)}
    assert after.keys() == before.keys() and not [path for path in after if after[path] == before[path]]
    assert len(before) == 7 and all(f"renewed {path}: expires " in renewed.output for path in before)
    assert list(expiry.authorities(installed)) == authorities
    for found in authorities:  # nothing is to be done for ten years
        assert re.search(rf"^kept {found.path}: expires \S+Z$", renewed.output, re.M)
    assert certs(installed, "renew").output == f"{NONE}\n"


def test_damaged_certificates_are_shown_with_their_fix_and_issued_again(installed: Settings) -> None:
    layout = installed.layout
    issued = [layout.pki / "apiserver.crt", layout.kubelet / "pki/kubelet.crt", layout.admin_kubeconfig]
    other, authority = layout.pki / "broken.crt", layout.pki / "front-proxy-ca.crt"
    former = authority.read_bytes()
    for path in (*issued, other, authority):
        path.write_text("damaged")
    found = certs(installed, "check")
    text = " ".join(found.output.split())
    assert found.exit_code == 1
    for path in issued:
        assert re.search(rf"the certificate in {path} is damaged \([^)]+\): `wherry certs renew` issues it again", text)
    assert f"the certificate in {other} is damaged (it is no certificate in PEM): restore it from a backup" in text
    assert f"the CA in {authority} is damaged (it is no certificate in PEM): restore it from a backup" in text
    assert re.search(rf"{other} +- +<damaged>\n", found.output)
    shown = {each["path"]: each for each in json.loads(certs(installed, "check", "-o", "json").output)}
    assert shown[str(other)] == {"path": str(other), "problem": "it is no certificate in PEM"}
    assert f"the CA in {authority} is damaged: " in str(certs(installed, "renew").exception)
    authority.write_bytes(former)
    other.unlink()
    renewed = certs(installed, "renew")
    assert renewed.exit_code == 0 and all(f"renewed {path}: " in renewed.output for path in issued)
    assert certs(installed, "check").exit_code == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone writes files of other accounts")
def test_renewed_files_keep_their_owner(installed: Settings) -> None:
    """Under systemd the control plane runs as an account of its own, and reads renewed certificates while it runs."""
    pki_folder = installed.layout.pki
    ca, now = pki.KeyPair.load(pki_folder, "ca"), SYSTEM.now()
    pki.issue(ca, "kube-apiserver", usages=(pki.SERVER,), sans=["n"], now=now, lifetime=timedelta(days=5)).save(
        pki_folder, "apiserver"
    )
    files = [pki_folder / f"apiserver.{ending}" for ending in ("crt", "key")]
    for file in files:
        os.chown(file, 4711, 4712)
    before = [file.read_bytes() for file in files]
    assert certs(installed, "renew").exit_code == 0
    assert all(file.read_bytes() != data for file, data in zip(files, before, strict=True))
    assert [(file.stat().st_uid, file.stat().st_gid, file.stat().st_mode & 0o777) for file in files] == [
        (4711, 4712, 0o644),
        (4711, 4712, 0o600),
    ]


def test_a_worker_renews_nothing_by_command(tmp_path: Path) -> None:
    settings = Settings(prefix=str(tmp_path), role="worker", joined="https://192.0.2.1:6443", node_name="n")
    settings.save()
    found = certs(settings, "renew")
    assert isinstance(found.exception, WherryError) and "renew their certificates themselves" in str(found.exception)


@pytest.mark.parametrize("ends", ["agent", "admin"])
def test_daemons_that_read_a_kubeconfig_at_their_start_are_restarted(
    installed: Settings, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    path = installed.layout.agent_kubeconfig if ends == "agent" else installed.layout.admin_kubeconfig
    old = kubeconfig.load(path)
    ca, now = pki.KeyPair.load(installed.layout.pki, "ca"), SYSTEM.now()
    short = pki.issue(ca, "system:node:n", ("system:nodes",), now=now, lifetime=timedelta(days=5))
    kubeconfig.write(
        path, kubeconfig.render(dataclasses.replace(old, certificate=short.cert_pem, key=short.key_pem), user="x")
    )
    done: list[str] = []

    async def running(settings: Settings) -> dict[str, int]:
        return {"agent": 1}

    async def stop(settings: Settings) -> bool:
        done.append("stop")
        return True

    async def start(settings: Settings) -> None:
        done.append("start")

    for name, replacement in (("running", running), ("stop", stop), ("start", start)):
        monkeypatch.setattr(daemons, name, replacement)
    found = certs(installed, "renew")
    assert found.output.startswith(f"renewed {path}: ")
    assert done == (["stop", "start"] if ends == "agent" else [])


def test_an_administrators_kubeconfig_that_is_missing_or_a_folder_is_reported_with_its_fix(
    installed: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = installed.layout.admin_kubeconfig
    path.unlink()
    found = certs(installed, "check")
    assert found.exit_code == 1 and "damaged (it is missing): `wherry certs renew` issues it again" in " ".join(
        found.output.split()
    )
    assert str(CliRunner().invoke(app, ["kubeconfig", "--prefix", installed.prefix]).exception) == (
        f"{path} is missing: `wherry up` or `wherry certs renew` writes it again"
    )
    path.mkdir()
    assert "remove the folder, then `wherry certs renew`" in " ".join(certs(installed, "check").output.split())
    for command in ("kubeconfig", "certs renew", "certs renew --all", "token list", "addons list", "kubectl get pods"):
        name, *rest = command.split()
        options = ["--prefix", installed.prefix]
        words = [name, *options, *rest] if name == "kubectl" else [name, *rest, *options]
        assert str(CliRunner().invoke(app, words).exception) == (
            f"{path} is a folder: remove it, then `wherry up` or `wherry certs renew` writes it again"
        ), command
    path.rmdir()
    assert f"renewed {path}: " in certs(installed, "renew").output and certs(installed, "check").exit_code == 0
