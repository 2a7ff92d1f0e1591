"""Values of all options: each wrong one is refused in a sentence with the option and its line, before anything is saved."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from wherry import settings as saved
from wherry import up as up_module
from wherry.errors import UsageError, WherryError
from wherry.main import app
from wherry.option_checks import complete, problems
from wherry.settings import Settings

RULE = "a lowercase RFC 1123 subdomain must consist of"
NOT_SERVER = "is not an API server's address: write it as in https://10.0.0.1:6443"


@pytest.fixture(autouse=True)
def address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wherry.addresses.own_address", lambda: "192.0.2.1")


def written(folder: Path, text: str) -> Path:
    path = folder / "etc/wherry/config.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o600)
    return path


def validate(folder: Path) -> list[str]:
    """Return the lines that `wherry config validate` shows, without the file's name where that is first."""
    found = CliRunner().invoke(app, ["config", "validate", "--prefix", str(folder)])
    text = str(found.exception) if isinstance(found.exception, WherryError) else found.output
    return [line.removeprefix(f"{folder / 'etc/wherry/config.yaml'}:") for line in text.splitlines()]


WRONG = [
    ("cluster-domain: '-- bad'", f"cluster-domain -- bad: {RULE}"),
    ("cluster-domain: é", f"cluster-domain é: {RULE}"),
    ('cluster-domain: "a\\u0007"', r"cluster-domain a\x07: it has characters that cannot be printed"),
    ("name: [a.example, 'bad name !']", f"name bad name !: it is neither an address nor a DNS name: {RULE}"),
    ("name: [é.example]", "name é.example: it is neither an address nor a DNS name"),
    ("name: ['fe80::1%eth0']", "name fe80::1%eth0: it is neither an address nor a DNS name"),
    (
        "sandbox-image: BAD IMAGE",
        "sandbox-image BAD IMAGE: invalid reference format; write it as registry.k8s.io/pause:3.10",
    ),
    ("sandbox-image: a:b:c", "sandbox-image a:b:c: invalid reference format"),
    ("runtime-endpoint: banana", "runtime-endpoint banana: this is no socket; write it as unix:///run/"),
    ("runtime-endpoint: tcp://127.0.0.1:1", "runtime-endpoint tcp://127.0.0.1:1: this is no socket"),
    (f"runtime-endpoint: /{'x' * 107}", f"runtime-endpoint /{'x' * 107}: the path of a socket has at most 107 bytes"),
    ("snapshot-s3-region: x y", "snapshot-s3-region x y: this is no region, such as us-east-1"),
    ("snapshot-s3-bucket: x", "snapshot-s3-bucket x: this is no name of a bucket"),
    ("snapshot-s3-endpoint: https://s3.example", "--snapshot-s3-bucket is missing"),
    ("snapshot-s3-timeout: -4", "snapshot-s3-timeout -4: it is at least 1 seconds"),
    ("node-name: Bad_Name", f"node-name Bad_Name: {RULE}"),
    ("node-ip: 10.244.0.1", "node-ip 10.244.0.1: this machine's address lies in --pod-cidr 10.244.0.0/16"),
    ("pod-cidr: 192.0.2.0/24", "--node-ip 192.0.2.1: this machine's address lies in --pod-cidr 192.0.2.0/24"),
    ("node-ip: 224.0.0.1", "node-ip 224.0.0.1: pods and other nodes cannot reach this"),
    ("node-ip: ::ffff:192.0.2.1", "node-ip ::ffff:192.0.2.1: not an IP address"),
    ("pod-cidr: banana", "pod-cidr banana: this is no address range, such as 10.244.0.0/16"),
    ("pod-cidr: 10.244.0.0/255.255.0.0", "pod-cidr 10.244.0.0/255.255.0.0: this is no address range"),
    ("pod-cidr: 10.244.1.0/16", "pod-cidr 10.244.1.0/16: the range with this address is 10.244.0.0/16"),
    ("pod-cidr: 10.244.0.0/25", "pod-cidr 10.244.0.0/25: each node gets a /24 of it: choose a larger range"),
    ("api-port: 10250", "api-port 10250: this is --kubelet-port, too"),
    ("max-pods: -3", "max-pods -3: it is at least 1"),
    ("max-pods: 65536", "max-pods 65536: it is at most 65535"),
    ("max-pods: 9999999999999", "max-pods 9999999999999: it is at most 65535"),
    ("resolv-conf: resolv.conf", "resolv-conf resolv.conf: write its whole path, from /"),
    ("registry-mirror: {a.io: 'http://b:x'}", "registry-mirror a.io=http://b:x: http://b:x is no URL of a mirror"),
    ("registry-mirror: {'a.io:99999': 'http://b'}", "registry-mirror a.io:99999=http://b: this is no host"),
    ("etcd-servers: http://192.0.2.1:2379", "etcd-servers is for --store etcd"),
    ("server: banana banana", f"banana banana {NOT_SERVER}"),
    ("server: 'https://[x'", f"https://[x {NOT_SERVER}"),
    ("token: abcdef", "token: a token is 6 letters or digits, a dot and 16"),
    ("discovery-token-ca-cert-hash: x", "discovery-token-ca-cert-hash is sha256: and 64 hexadecimal digits"),
    ("certificate-key: x", "certificate-key is 64 hexadecimal digits"),
]


@pytest.mark.parametrize(("text", "problem"), WRONG)
def test_a_wrong_value_in_the_file_is_named_with_its_line(tmp_path: Path, text: str, problem: str) -> None:
    first, *others = validate_of(tmp_path, text)
    assert first.startswith(f"3: {problem}") and (not others or "s3-bucket" in text)


def validate_of(folder: Path, text: str) -> list[str]:
    written(folder, f"# a comment\n\n{text}\n")
    return validate(folder)


@pytest.mark.parametrize(
    ("servers", "valid"),
    [
        ("[https://10.0.0.1:2379, 'https://[fd00::1]:2379']", True),
        ("http://etcd_1.example", True),
        ("banana", False),
        ("https://a:0", False),
        ("https://a:99999", False),
        ("https://u:p@a:2379", False),
        ("https://a:2379/v2", False),
        ("https://a:2379?x", False),
        ("ftp://a:2379", False),
        ("https://", False),
    ],
)
def test_members_of_etcd_are_urls(tmp_path: Path, servers: str, valid: bool) -> None:
    lines = validate_of(tmp_path, f"etcd-servers: {servers}\nstore: etcd")
    assert (
        lines == [f"{tmp_path / 'etc/wherry/config.yaml'} is valid"] if valid else "write http://HOST:PORT" in lines[0]
    )


@pytest.mark.parametrize(("prefix", "valid"), [("/a/b-c", True), ("no slash", False), ("/", False), ("/a//b", False)])
def test_the_prefix_of_keys_is_a_path(prefix: str, valid: bool) -> None:
    found = problems(Settings(store="etcd", etcd_servers="http://a:1", etcd_prefix=prefix), "192.0.2.1")
    assert [each.option for each in found] == ([] if valid else ["etcd-prefix"])


@pytest.mark.parametrize(
    "image",
    [
        "pause",
        "registry.k8s.io/pause:3.10",
        "127.0.0.1:5000/a/b_c__d-e.f:T_a.g-1",
        "[fd00::1]:5000/a",
        f"docker.io/library/busybox@sha256:{'a' * 64}",
        "localhost/wherry-pause:1",
    ],
)
def test_images_of_pod_sandboxes(image: str) -> None:
    assert not problems(Settings(sandbox_image=image), "192.0.2.1")


@pytest.mark.parametrize("image", ["a" * 64, "a/B", "a:", "a@sha256:1", "/a", "a//b", "a:" + "x" * 129, "a" * 256])
def test_what_is_no_image_of_pod_sandboxes(image: str) -> None:
    assert [each.option for each in problems(Settings(sandbox_image=image), "192.0.2.1")] == ["sandbox-image"]


def test_all_wrong_values_are_reported_in_the_order_of_their_lines(tmp_path: Path) -> None:
    written(
        tmp_path,
        "cluster-domain: '-- bad'\nmax-pods: many\nproxy: nginx\nnod-ip: 192.0.2.9\nsnapshot-s3-bucket: x\n"
        "name: [ok.example, 'not ok', 192.0.2.9]\nregistries: {a.io: {insecure: 1}}\nserver: 'https://[x'\n"
        "snapshot-retention: 0\n",
    )
    lines = validate(tmp_path)
    assert [line.split(":")[0] for line in lines] == ["1", "2", "3", "4", "5", "5", "6", "7", "8", "9"]


def test_an_option_without_a_value_makes_no_other_one_wrong(tmp_path: Path) -> None:
    written(tmp_path, "store: etcd\netcd-servers: {a: b}\n")
    assert validate(tmp_path) == ["2: etcd-servers: write a text"]


def test_up_names_all_wrong_values_and_saves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    path = written(tmp_path, "name: [é.example]\napi-port: 0\n")
    words = ["up", "--prefix", str(tmp_path), "--cluster-domain", "é", "--sandbox-image", "BAD IMAGE"]
    found = CliRunner().invoke(app, words)
    lines = str(found.exception).splitlines()
    assert isinstance(found.exception, UsageError)
    assert [line.split(": ")[0] for line in lines] == [
        f"{path}:1",
        f"{path}:2",
        "--cluster-domain é",
        "--sandbox-image BAD IMAGE",
    ]
    assert saved.load(str(tmp_path)) is None


def test_join_names_all_wrong_values_before_it_asks_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    path = written(tmp_path, "max-pods: 0\nserver: https://192.0.2.9:6443\ntoken: abcdef\n")
    words = ["join", "--prefix", str(tmp_path), "--discovery-token-ca-cert-hash", "x", "--sandbox-image", "BAD IMAGE"]
    lines = str(CliRunner().invoke(app, words).exception).splitlines()
    assert [line.split(": ")[0] for line in lines] == [
        f"{path}:1",
        f"{path}:3",
        "--discovery-token-ca-cert-hash is sha256",
        "--sandbox-image BAD IMAGE",
    ]


@pytest.mark.parametrize("words", [["--proxy", "foo"], ["--max-pods", "0"], ["--registry-mirror", "a.io"]])
def test_a_wrong_value_on_the_command_line_is_an_error_of_the_command_line(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    written(tmp_path, "{}")
    found = CliRunner().invoke(app, ["up", "--prefix", str(tmp_path), *words])
    assert isinstance(found.exception, UsageError) and str(found.exception).startswith(" ".join(words[:2]))
    written(tmp_path, "proxy: foo\n")
    found = CliRunner().invoke(app, ["up", "--prefix", str(tmp_path)])
    assert isinstance(found.exception, WherryError) and not isinstance(found.exception, UsageError)


@pytest.mark.parametrize("command", ["up", "join", "config"])
def test_an_address_that_no_interface_has_is_refused_before_anything_is_saved(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("wherry.addresses.absent", lambda wanted: [each for each in wanted if each == "192.0.2.8"])
    text = "192.0.2.8: no interface of this machine has this address; `ip address` shows those that it has"
    if command == "config":
        assert validate_of(tmp_path, "node-ip: '192.0.2.8, 2001:db8::1'") == [f"3: node-ip {text}"]
        assert validate_of(tmp_path, "node-ip: 192.0.2.9") == [f"{tmp_path / 'etc/wherry/config.yaml'} is valid"]
        return
    server = ["https://192.0.2.9:6443", "--token", "abcdef.0123456789abcdef"] if command == "join" else []
    server += ["--discovery-token-ca-cert-hash", f"sha256:{'0' * 64}"] if command == "join" else []
    found = CliRunner().invoke(app, [command, *server, "--prefix", str(tmp_path), "--node-ip", "192.0.2.8"])
    assert str(found.exception) == f"--node-ip {text}"
    assert saved.load(str(tmp_path)) is None


def test_ranges_are_saved_without_blanks() -> None:
    full = complete(Settings(pod_cidr="10.1.0.0/16, FD00::0/56", service_cidr="10.2.0.0/16 ,fd01::/112"), "192.0.2.1")
    assert (full.pod_cidr, full.service_cidr) == ("10.1.0.0/16,fd00::/56", "10.2.0.0/16,fd01::/112")


def test_a_controllers_file_may_divide_the_pod_range_otherwise(tmp_path: Path) -> None:
    settings = Settings(prefix=str(tmp_path), pod_cidr="10.1.0.0/25")
    assert [each.option for each in problems(settings, "192.0.2.1")] == ["pod-cidr"]
    (tmp_path / "etc/wherry").mkdir(parents=True)
    (tmp_path / "etc/wherry/controller-manager.yaml").write_text("node-cidr-mask-size: 26\n")
    assert not problems(settings, "192.0.2.1")


def test_a_wrong_host_name_is_named_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "My_Laptop")
    with pytest.raises(
        WherryError, match=r"^the host name 'my_laptop' is no name of a node: .*; choose one with --node-name$"
    ):
        complete(Settings(), "192.0.2.1")


def test_a_disabled_addon_that_does_not_exist_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = validate_of(tmp_path, "disable: [metrcs, metrics, board, later]")
    (tmp_path / "var/lib/wherry/addons").mkdir(parents=True)
    (tmp_path / "var/lib/wherry/addons/board.yaml").touch()
    valid = f"{tmp_path / 'etc/wherry/config.yaml'} is valid"
    assert shown == [
        "3: disable metrcs: there is no such addon; did you mean metrics?",
        "3: disable board: there is no such addon",
        "3: disable later: there is no such addon",
        valid,
    ]
    assert validate(tmp_path) == [shown[0], shown[2], valid]

    async def nothing(settings: Settings) -> None:
        return

    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(up_module, "up", nothing)
    assert shown[0] in CliRunner().invoke(app, ["up", "--prefix", str(tmp_path)]).output
    saved_options = Settings(prefix=str(tmp_path), node_name="n1", disable=["metrcs"], configured=["disable"])
    saved_options.save()
    (tmp_path / "etc/wherry/config.yaml").unlink()
    found = CliRunner().invoke(app, ["up", "--prefix", str(tmp_path)])
    assert "did you mean metrics?; `wherry up --unset disable` takes the option back" in found.output


def test_print_shows_values_that_are_refused_and_names_them(tmp_path: Path) -> None:
    path = written(tmp_path, "max-pods: 0\nproxy: nginx\n")
    found = CliRunner().invoke(app, ["config", "print", "--prefix", str(tmp_path)])
    assert found.output == "proxy: nginx\nmax-pods: 0\n" and found.exit_code == 1
    assert str(found.exception) == (
        f"{path}:1: max-pods 0: it is at least 1\n{path}:2: proxy nginx: it is one of wherry, upstream and none"
    )
