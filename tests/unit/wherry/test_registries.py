"""Image registries of the configuration file: their errors, containerd's files for them, and the node's credentials."""

from __future__ import annotations

import base64
import json
import tomllib
from pathlib import Path

import pytest

from agent.images.credentials.keyring import Keyring
from kube.api import core_v1, meta_v1
from wherry import config_file, registries, reset, wanted
from wherry import settings as saved
from wherry.errors import WherryError
from wherry.option_checks import complete
from wherry.registries import Registry
from wherry.settings import Settings


def read(folder: Path, text: str) -> dict[str, Registry]:
    path = folder / "config.yaml"
    path.write_text(text)
    path.chmod(0o600)
    return wanted.merge(Settings(), config_file.read(path, {}), {}, {}).registries


def test_a_registry_has_mirrors_an_authority_and_credentials(tmp_path: Path) -> None:
    ca = tmp_path / "ca.crt"
    ca.write_text("")
    text = f"""\
registries:
  registry.example.com:5000:
    mirrors: [http://10.0.0.1:5000, https://mirror.example.com]
    ca: {ca}
    username: robot
    password: "12"
  docker.io:
    mirrors: [http://10.0.0.1:5000]
  old.example.com: {{insecure: true}}
  10.0.0.9:5000: {{plain-http: true}}
"""
    found = read(tmp_path, text)
    registries.write(tmp_path / "registries", found)
    files = {path.parent.name: tomllib.loads(path.read_text()) for path in tmp_path.glob("registries/*/hosts.toml")}
    pull = {"capabilities": ["pull", "resolve"]}
    assert files == {
        "registry.example.com:5000": {
            "host": {
                "http://10.0.0.1:5000": pull,
                "https://mirror.example.com": pull,
                "https://registry.example.com:5000": {**pull, "ca": str(ca)},
            },
        },
        "docker.io": {"host": {"http://10.0.0.1:5000": pull}},
        "old.example.com": {
            "host": {"https://old.example.com": {**pull, "skip_verify": True}},
        },
        "10.0.0.9:5000": {"server": "http://10.0.0.9:5000"},
    }
    auths = json.loads((tmp_path / "registries/config.json").read_text())["auths"]
    assert auths == {"registry.example.com:5000": {"auth": base64.b64encode(b"robot:12").decode()}}
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in tmp_path.rglob("registries/**/*.*") if path.is_file())


def test_credentials_alone_are_no_concern_needs_hosts_toml(tmp_path: Path) -> None:
    """A file with another server than containerd would choose breaks pulls from Docker Hub and from this machine."""
    registries.write(tmp_path, {"docker.io": Registry(username="u", password="p")})
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
    assert 'host."https://registry-1.docker.io"' in registries.hosts_file("docker.io", Registry(insecure=True))


def test_what_leaves_the_file_is_removed_and_what_others_made_stays(tmp_path: Path) -> None:
    registries.write(tmp_path, {"a.io": Registry(insecure=True), "b.io": Registry(insecure=True)})
    (tmp_path / "a.io/client.key").write_text("mine")
    (tmp_path / "c.io").mkdir()
    own = tmp_path / "c.io/hosts.toml"
    own.write_text('server = "https://c.io"\n')
    registries.write(tmp_path, {"c.io": Registry(username="u", password="p")})
    names = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert names == ["a.io/client.key", "c.io/hosts.toml", "config.json"]
    with pytest.raises(WherryError, match="was not written by wherry: move its settings"):
        registries.write(tmp_path, {"c.io": Registry(insecure=True)})
    assert own.read_text() == 'server = "https://c.io"\n'


def test_files_of_earlier_versions_are_replaced(tmp_path: Path) -> None:
    for host in ("a.io", "b.io"):
        (tmp_path / host).mkdir()
        text = f'server = "https://{host}"\n\n[host."http://m"]\n  capabilities = ["pull", "resolve"]\n'
        (tmp_path / host / "hosts.toml").write_text(text)
    registries.write(tmp_path, {"a.io": Registry(mirrors=["http://m"])})
    assert [path.parent.name for path in tmp_path.glob("*/hosts.toml")] == ["a.io"]
    assert registries.MARK in (tmp_path / "a.io/hosts.toml").read_text()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[a]", "write hosts as keys"),
        ("{a.io: {user: x}}", "a.io: there is no setting user; there are mirrors, ca,"),
        ("{a.io: {insecure: 1}}", "a.io: insecure: write true or false"),
        ("{a.io: {username: u}}", "a.io: username and password go together"),
        ("{a.io: {ca: /none}}", "a.io: there is no file /none"),
        ("{a.io: {plain-http: true, insecure: true}}", "a.io: with plain-http there is no certificate"),
        ("{https://a.io: {}}", "https://a.io: this is no host"),
        ("{../../x: {}}", "../../x: this is no host"),
        ("{a.io: {mirrors: [b.io]}}", "a.io: b.io is no URL of a mirror"),
        ("{a.io: {mirrors: ['http://b\"]x']}}", "is no URL of a mirror"),
        ("{a.io: {}, a.io: {}}", "a.io is there twice"),
        ("{a.io: {insecure: true, insecure: false}}", "a.io: insecure is there twice"),
        ("{a.io: {insecure: !!bool maybe}}", "a.io: insecure: write true or false"),
        ("{a.io: x}", "a.io: write settings as keys"),
        ("{config.json: {}}", "config.json: this is no host"),
        ("{a.io: {ca: ca.pem}}", "a.io: there is no file ca.pem; write its path from /"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(WherryError) as found:
        read(tmp_path, f"\nregistries: {text}\n")
    assert str(found.value).startswith(f"{tmp_path / 'config.yaml'}:2: registries: ") and problem in str(found.value)


def test_a_password_is_for_root_alone(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("registries: {a.io: {username: u, password: p}}\n")
    path.chmod(0o640)
    with pytest.raises(WherryError, match="contains secrets and other users may read it"):
        config_file.read(path, {})


def test_passwords_are_not_printed() -> None:
    settings = Settings(registries={"a.io": Registry(username="u", password="secret", insecure=True)})
    shown = wanted.as_options(settings, {})
    assert shown == {"registries": {"a.io": {"insecure": True, "username": "u"}}}


def test_a_mirror_of_the_command_line_comes_first() -> None:
    settings = Settings(
        registry_mirrors={"a.io": "http://m", "b.io": "http://n"},
        registries={"a.io": Registry(mirrors=["http://k", "http://m"], insecure=True)},
    )
    assert settings.all_registries == {
        "a.io": Registry(mirrors=["http://m", "http://k"], insecure=True),
        "b.io": Registry(mirrors=["http://n"]),
    }


def test_another_containerd_has_files_of_its_own() -> None:
    settings = Settings(
        node_name="n", runtime_endpoint="unix:///run/other.sock", registries={"a.io": Registry(insecure=True)}
    )
    with pytest.raises(WherryError, match="are for Wherry's own containerd"):
        complete(settings, "192.0.2.1")
    complete(
        Settings(
            node_name="n", runtime_endpoint="unix:///x", registries={"a.io": Registry(username="u", password="p")}
        ),
        "192.0.2.1",
    )


async def test_the_agent_reads_the_nodes_credentials(tmp_path: Path) -> None:
    settings = Settings(prefix=str(tmp_path), node_name="n", node_ip="192.0.2.1")
    own, more = tmp_path / "own.json", settings.layout.registries / "config.json"
    own.write_text(json.dumps({"auths": {"b.io": {"username": "v"}}}))
    registries.write(settings.layout.registries, {"a.io": Registry(username="u", password="p")})
    keyring = Keyring([own, tmp_path / "none.json", more])
    pod = core_v1.Pod(metadata=meta_v1.ObjectMeta(name="p", namespace="n", uid="u"))
    names = [
        [each.username for each in await keyring.find(pod, image, ())] for image in ("a.io/x:1", "b.io/x:1", "c.io/x")
    ]
    assert names == [["u"], ["v"], []]


def test_passwords_are_saved_for_root_alone(tmp_path: Path) -> None:
    """The control plane's account reads wherry.json, and needs no credentials of registries."""
    kept = {"a.io": Registry(username="u", password="secret")}
    Settings(prefix=str(tmp_path), registries=kept).save()
    layout = Settings(prefix=str(tmp_path)).layout
    private = layout.registries / "settings.json"
    assert "secret" not in layout.settings.read_text() and private.stat().st_mode & 0o777 == 0o600
    found = saved.load(str(tmp_path))
    assert found is not None and found.registries == kept
    private.unlink()
    assert saved.load(str(tmp_path)) == Settings(prefix=str(tmp_path))


def test_a_reset_leaves_what_the_administrator_wrote(tmp_path: Path) -> None:
    layout = Settings(prefix=str(tmp_path)).layout
    registries.write(layout.registries, {"a.io": Registry(insecure=True, username="u", password="p")})
    own = layout.registries / "b.io/hosts.toml"
    own.parent.mkdir()
    for path in (layout.config, own, layout.admin_kubeconfig):
        path.write_text("x")
    reset._remove_files(Settings(prefix=str(tmp_path)), keep_data=False)
    assert sorted(path for path in layout.etc.rglob("*") if path.is_file()) == sorted([layout.config, own])
