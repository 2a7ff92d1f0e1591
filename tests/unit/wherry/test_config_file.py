"""/etc/wherry/config.yaml: its keys, its errors with their lines, and its place between saved options and flags."""

from __future__ import annotations

import itertools
import json
import shlex
from pathlib import Path

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from wherry import config_file, wanted
from wherry import settings as saved
from wherry.command_options import Option, options_of
from wherry.errors import WherryError
from wherry.main import app
from wherry.membership import join
from wherry.settings import Settings
from wherry.up_command import up

UP, JOIN = options_of(up), options_of(join)


def written(folder: Path, text: str, mode: int = 0o644) -> Path:
    path = folder / "config.yaml"
    path.write_text(text)
    path.chmod(mode)
    return path


def merged(
    folder: Path, text: str, before: Settings | None = None, unset: tuple[str, ...] = (), **flags: object
) -> Settings:
    file = config_file.read(written(folder, text), UP)
    return wanted.merge(before or Settings(), file, flags, UP, unset)


def test_every_option_of_up_and_join_has_a_type_and_a_text() -> None:
    assert {"max-pods", "registry-mirror", "name", "service-load-balancer", "store"} <= UP.keys()
    assert {"server", "token", "discovery-token-ca-cert-hash", "control-plane"} == JOIN.keys() - UP.keys() - {
        "certificate-key"
    }
    assert not {"prefix", "unset"} & (UP.keys() | JOIN.keys())
    assert all(option.type in (str, int, bool, list) and option.text for option in (UP | JOIN).values())


def test_options_are_keys(tmp_path: Path) -> None:
    text = """\
# a comment
node-name: n1
max-pods: 200
service-load-balancer: false
disable: [metrics, board]
pod-cidr: [10.1.0.0/16, "fd00::/56"]
load-balancer-ports: 80
name:
- api.example.com
registry-mirror:
  docker.io: http://127.0.0.1:5000
proxy: none
"""
    found = merged(tmp_path, text)
    assert (found.node_name, found.max_pods, found.service_load_balancer) == ("n1", 200, False)
    assert found.disable == ["metrics", "board"]
    assert (found.pod_cidr, found.load_balancer_ports) == ("10.1.0.0/16,fd00::/56", "80")
    assert (found.names, found.registry_mirrors, found.proxy) == (
        ["api.example.com"],
        {"docker.io": "http://127.0.0.1:5000"},
        "none",
    )
    assert found.configured == sorted(
        "node_name max_pods service_load_balancer disable pod_cidr load_balancer_ports names registry_mirrors proxy".split()
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: b\nmax-pod: 3\n", "{}:1: there is no option a\n{}:2: there is no option max-pod; did you mean max-pods?"),
        ("max-pods: 1\nmax-pods: 2\n", "{}:2: max-pods is set in line 1, too"),
        ("max-pods: many\n", "{}:1: max-pods: write a number"),
        ("max-pods: 0x10\n", "{}:1: max-pods: write a number"),
        ("max-pods:\n", "{}:1: max-pods: write a number"),
        ("node-name:\n", "{}:1: node-name: write a text"),
        ("node-name: {a: b}\n", "{}:1: node-name: write a text"),
        ("\nservice-load-balancer: 1\n", "{}:2: service-load-balancer: write true or false"),
        ("name: x\n", "{}:1: name: write a list of texts, as in `name: [a, b]`"),
        ("name:\n- a\n- [b]\n", "{}:2: name: write a text"),
        ("- a\n", "{}:1: write options as keys, as in `max-pods: 200`"),
        ("a: [\n", "{}:2: a value or a closing bracket is missing"),
        ("a: 1\n--- {}\n", "{}:2: there is a second document: write all of it in one"),
        ("registry-mirror: [docker.io]\n", "{}:1: registry-mirror: docker.io: write HOST=URL"),
    ],
)
def test_errors_have_their_line(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(WherryError) as found:
        merged(tmp_path, text)
    assert str(found.value).startswith(problem.replace("{}", str(tmp_path / "config.yaml")))


def test_a_file_that_cannot_be_read_is_an_error_and_none_is_empty(tmp_path: Path) -> None:
    assert not config_file.read(tmp_path / "none", UP).lines
    with pytest.raises(WherryError, match="cannot be read: Is a directory"):
        config_file.read(tmp_path, UP)
    (tmp_path / "config.yaml").write_bytes(b"\xff")
    with pytest.raises(WherryError, match="cannot be read: it is not UTF-8"):
        config_file.read(tmp_path / "config.yaml", UP)


def test_a_token_is_for_root_alone(tmp_path: Path) -> None:
    for text in ("token: a.b", "etcd-servers: https://u:p@a.example", "registry-mirror: {a.io: 'http://u:p@b.io'}"):
        with pytest.raises(WherryError, match="contains secrets and other users may read it: `chmod 600"):
            config_file.read(written(tmp_path, f"{text}\n"), UP | JOIN)
    assert config_file.read(written(tmp_path, "token: a.b\n", 0o600), JOIN).arguments == {"token": "a.b"}


def test_flags_override_the_file_and_the_file_what_is_saved(tmp_path: Path) -> None:
    before = Settings(max_pods=50, api_port=7443, kubelet_port=10350)
    found = merged(tmp_path, "max-pods: 200\napi-port: 8443\n", before, api_port=9443)
    assert (found.max_pods, found.api_port, found.kubelet_port) == (200, 9443, 10350)
    assert found.configured == ["max_pods"]


def test_what_leaves_the_file_gets_its_default_again(tmp_path: Path) -> None:
    first = merged(tmp_path, "max-pods: 200\napi-port: 8443\n", Settings(kubelet_port=10350))
    second = merged(tmp_path, "api-port: 8443\n", first)
    assert (second.max_pods, second.api_port, second.kubelet_port) == (110, 8443, 10350)
    assert merged(tmp_path, "", second, api_port=9443).api_port == 9443


def test_an_option_can_be_taken_back(tmp_path: Path) -> None:
    before = Settings(max_pods=50, names=["a"], node_ip="192.0.2.1", second_node_ip="2001:db8::1")
    found = merged(tmp_path, "", before, ("max-pods", "--name", "node-ip"))
    assert (found.max_pods, found.names, found.node_ip, found.second_node_ip) == (110, [], "", "")
    for name, why in (("max", "there is no such option"), ("server", "there is no such option")):
        with pytest.raises(WherryError, match=f"--unset {name}: {why}"):
            merged(tmp_path, "", before, (name,))
    with pytest.raises(WherryError, match=r"--unset max-pods: remove it from .*config.yaml:1 instead"):
        merged(tmp_path, "max-pods: 3\n", before, ("max-pods",))
    with pytest.raises(WherryError, match="--unset max-pods: it is set in the same command"):
        merged(tmp_path, "", before, ("max-pods",), max_pods=3)


def test_a_command_that_failed_names_the_options_that_restore_the_former_ones() -> None:
    before = Settings(max_pods=50, names=["a", "b"], service_load_balancer=False, node_ip="192.0.2.1")
    after = Settings(
        max_pods=60, names=["c"], proxy_mode="ipvs", node_ip="192.0.2.1", api_port=7443, registry_mirrors={"a": "b"}
    )
    found = wanted.taken_back(before, after, UP, {"api-port": 1})
    assert found.startswith("\nThe options are saved; to restore the former ones, run `wherry up ")
    words = found.split("`wherry up ")[1].rstrip("`").removeprefix("--").split(" --")
    assert sorted(words) == ["max-pods 50", "name a", "name b", "no-service-load-balancer", "unset proxy-mode"]
    assert wanted.taken_back(before, before, UP, {}) == wanted.taken_back(None, after, UP, {}) == ""


def test_the_former_options_are_quoted_for_a_shell() -> None:
    texts = ["a b", "$(id)", "it's;`id`", "", "-x", "plain"]
    found = wanted.taken_back(Settings(names=texts), Settings(names=["c"]), UP, {})
    command = found.split("run `wherry up ", 1)[1].removesuffix("`")
    parts = shlex.split(command)
    assert [part.partition("=")[2] for part in parts if part.startswith("--name=")] == ["-x"]
    assert [value for name, value in itertools.pairwise(parts) if name == "--name"] == [*texts[:4], "plain"]


def test_a_worker_takes_no_options_of_the_cluster(tmp_path: Path) -> None:
    """All machines may share one file, so that options of the cluster in it are left to the first machine."""
    worker = Settings(role="worker", joined="https://192.0.2.1:6443", node_name="n")
    found = merged(tmp_path, "max-pods: 9\npod-cidr: 10.1.0.0/16\napi-port: 8443\nnode-name: other\n", worker)
    assert (found.max_pods, found.pod_cidr, found.api_port, found.node_name) == (9, "10.244.0.0/16", 6443, "n")
    with pytest.raises(WherryError, match="--pod-cidr is the cluster's, not a worker's"):
        merged(tmp_path, "", worker, pod_cidr="10.1.0.0/16")
    with pytest.raises(WherryError, match="--pod-cidr is the cluster's, not a worker's"):
        merged(tmp_path, "", msgspec.structs.replace(worker, pod_cidr="10.1.0.0/16"), ("pod-cidr",))


def test_a_machine_that_joins_leaves_options_of_the_cluster_to_it(tmp_path: Path) -> None:
    text = "node-name: n\napi-port: 8443\nname: [a]\nmax-pods: 9\npod-cidr: 10.1.0.0/16\nscheduler-port: 0\n"
    file = config_file.read(written(tmp_path, text), UP | JOIN)
    worker = wanted.merge(Settings(), file, {}, JOIN, joining="worker")
    assert (worker.node_name, worker.max_pods, worker.api_port, worker.names) == ("n", 9, 6443, [])
    member = wanted.merge(Settings(), file, {}, JOIN, joining="control-plane")
    assert (member.api_port, member.names, member.pod_cidr) == (8443, ["a"], "10.244.0.0/16")
    assert (worker.scheduler_port, member.scheduler_port) == (10259, 0)
    joined = msgspec.structs.replace(worker, role="worker", joined="https://192.0.2.1:6443")
    assert merged(tmp_path, text, joined).max_pods == 9 and merged(tmp_path, "", joined).max_pods == 110


def test_what_identifies_a_cluster_is_reset_by_the_command_only(tmp_path: Path) -> None:
    """A line, or the whole file, may be missing by mistake: a running cluster would get other addresses and names."""
    text = "node-name: n1\npod-cidr: 10.1.0.0/16\nservice-cidr: 10.2.0.0/16\nmax-pods: 9\n"
    before = msgspec.structs.replace(merged(tmp_path, text), cluster_dns="10.2.0.10")
    shorter = merged(tmp_path, "{}", before)
    assert (shorter.node_name, shorter.pod_cidr, shorter.service_cidr, shorter.max_pods) == (
        "n1",
        "10.1.0.0/16",
        "10.2.0.0/16",
        110,
    )
    (tmp_path / "config.yaml").unlink()
    assert wanted.merge(before, config_file.read(tmp_path / "config.yaml", UP), {}, UP) == before
    unset = merged(tmp_path, "{}", before, ("service-cidr",))
    assert (unset.service_cidr, unset.cluster_dns, unset.pod_cidr) == ("10.96.0.0/12", "", "10.1.0.0/16")


def test_a_shorter_node_address_has_no_second_one(tmp_path: Path) -> None:
    before = merged(
        tmp_path, "node-ip: [192.0.2.1, '2001:db8::1']\n", Settings(node_ip="192.0.2.1", second_node_ip="2001:db8::1")
    )
    assert (before.node_ip, before.second_node_ip) == ("192.0.2.1,2001:db8::1", "")
    assert (
        merged(
            tmp_path, "node-ip: 192.0.2.1\n", Settings(node_ip="192.0.2.1", second_node_ip="2001:db8::1")
        ).second_node_ip
        == ""
    )


def config(folder: Path, *arguments: str) -> tuple[int, str]:
    found = CliRunner().invoke(app, ["config", *arguments, "--prefix", str(folder)])
    return found.exit_code, str(found.exception) if isinstance(found.exception, WherryError) else found.output


def test_validate_checks_values_too(tmp_path: Path) -> None:
    etc = tmp_path / "etc/wherry"
    etc.mkdir(parents=True)
    path = written(etc, "node-ip: 192.0.2.1\n\nproxy: nginx\n")
    assert config(tmp_path, "validate") == (1, f"{path}:3: proxy nginx: it is one of wherry, upstream and none")
    for text, problem in (
        ("api-port: 99999999", "api-port 99999999: a port is between 1 and 65535"),
        ("kubelet-port: 6443", "kubelet-port 6443: this is --api-port, too"),
        ("kubelet-port: 0", "kubelet-port 0: a port is between 1 and 65535"),
        ("scheduler-port: 10257", "scheduler-port 10257: this is --controller-manager-port, too"),
        ("max-pods: 0", "max-pods 0: it is at least 1"),
        ("proxy-mode: banana", "proxy-mode banana: it is one of iptables, nftables, ipvs and auto"),
        ("resolv-conf: /none", "resolv-conf /none: there is no such file"),
        ("registry-mirror: {../../x: 'http://a'}", "registry-mirror ../../x=http://a: this is no host"),
        ("registry-mirror: {a.io: nonsense}", "registry-mirror a.io=nonsense: nonsense is no URL of a mirror"),
    ):
        written(etc, f"node-ip: 192.0.2.1\n{text}\n")
        code, message = config(tmp_path, "validate")
        assert code == 1 and message.startswith(f"{path}:2: {problem}")
    written(etc, "node-ip: 192.0.2.1\nscheduler-port: 0\ncontroller-manager-port: 0\n")
    assert config(tmp_path, "validate") == (0, f"{path} is valid\n")
    written(etc, "node-ip: 192.0.2.1\nserver: https://192.0.2.9:6443\n")
    assert config(tmp_path, "validate") == (0, f"{path} is valid\n")
    assert config(tmp_path, "validate", str(tmp_path / "none")) == (1, f"there is no file {tmp_path / 'none'}")


def test_print_shows_what_would_be_used_in_the_files_form(tmp_path: Path) -> None:
    etc = tmp_path / "etc/wherry"
    etc.mkdir(parents=True)
    Settings(prefix=str(tmp_path), node_name="n", node_ip="192.0.2.1", second_node_ip="2001:db8::1", max_pods=50).save()
    path = written(etc, "max-pods: 200\nname: [a]\n")
    code, text = config(tmp_path, "print")
    assert code == 0
    assert yaml.safe_load(text) == {
        "node-name": "n",
        "node-ip": "192.0.2.1,2001:db8::1",
        "max-pods": 200,
        "name": ["a"],
    }
    assert json.loads(config(tmp_path, "print", "-o", "json")[1]) == yaml.safe_load(text)
    assert config(tmp_path, "print", "-o", "table") == (1, "-o table: use yaml or json")
    everything = yaml.safe_load(config(tmp_path, "print", "--defaults")[1])
    assert everything.keys() == {*UP, "registries"} and everything["store"] == "sqlite"
    path.write_text(config(tmp_path, "print", "--defaults")[1])
    assert config(tmp_path, "validate")[0] == 0 and config(tmp_path, "print")[1] == text


def test_a_first_machine_has_no_options_of_join(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    etc = tmp_path / "etc/wherry"
    etc.mkdir(parents=True)
    path = written(etc, "max-pods: 3\nserver: https://192.0.2.9:6443\n")
    found = CliRunner().invoke(app, ["up", "--prefix", str(tmp_path)])
    assert str(found.exception) == f"{path}:2: server is no option of `wherry up`"
    assert saved.load(str(tmp_path)) is None


def test_join_reads_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    etc = tmp_path / "etc/wherry"
    etc.mkdir(parents=True)
    path = written(etc, "server: https://192.0.2.9:6443\ntoken: nothing\ndiscovery-token-ca-cert-hash: x\n", 0o600)
    found = CliRunner().invoke(app, ["join", "--prefix", str(tmp_path)])
    assert str(found.exception).startswith(f"{path}:2: token: ")
    found = CliRunner().invoke(app, ["join", "--prefix", str(tmp_path), "--token", "abcdef.0123456789abcdef"])
    assert str(found.exception).startswith(f"{path}:3: discovery-token-ca-cert-hash is sha256:")
    found = CliRunner().invoke(
        app,
        [
            "join",
            "--prefix",
            str(tmp_path),
            "--discovery-token-ca-cert-hash",
            "y",
            "--token",
            "abcdef.0123456789abcdef",
        ],
    )
    assert str(found.exception).startswith("--discovery-token-ca-cert-hash is sha256:"), (
        "it is the command's, not the file's"
    )
    path.write_text("pod-cidr: 10.1.0.0/16\n")
    found = CliRunner().invoke(app, ["join", "--prefix", str(tmp_path)])
    assert str(found.exception) == "the API server's address is missing: copy the line that `wherry up` printed"


VALUES = {
    str: st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1),
    int: st.integers(1, 999_999_999),
    bool: st.booleans(),
    list: st.lists(st.from_regex(r"[a-z]{1,5}=[a-z]{1,5}", fullmatch=True), min_size=1),
}


@st.composite
def files(draw: st.DrawFn) -> dict[str, object]:
    chosen: list[Option] = draw(st.lists(st.sampled_from(sorted(UP.values(), key=lambda o: o.name)), unique=True))
    return {option.name: draw(VALUES[option.type]) for option in chosen}


@settings(deadline=None, max_examples=100)
@given(files(), files())
def test_what_is_written_is_what_is_read_and_nothing_of_an_older_file_stays(
    tmp_path_factory: pytest.TempPathFactory, first: dict[str, object], second: dict[str, object]
) -> None:
    folder = tmp_path_factory.mktemp("config")
    after = merged(folder, yaml.safe_dump(first))
    found, alone = merged(folder, yaml.safe_dump(second), after), merged(folder, yaml.safe_dump(second))
    for name in Settings.__struct_fields__:
        kept = name in wanted.IDENTITY and name not in alone.configured
        assert getattr(found, name) == (getattr(after, name) if kept else getattr(alone, name)) or name == "cluster_dns"
    shown = wanted.as_options(found, UP)
    for name, value in second.items():
        expected = wanted.mirrors(value) if name == "registry-mirror" else value  # type: ignore[arg-type]
        assert shown[name] == expected


def test_options_that_join_ignores_are_those_of_up() -> None:
    assert UP.keys() - JOIN.keys() <= wanted.OF_UP <= UP.keys()
