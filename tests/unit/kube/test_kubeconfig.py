from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube import kubeconfig
from kube.kubeconfig import Access, KubeconfigError


def written(path: Path, cluster: dict[str, Any], user: dict[str, Any] | None = None) -> Path:
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://192.0.2.1:6443", **cluster}}],
        "users": [{"name": "u", "user": user or {"token": "t"}}],
    }
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.mark.parametrize("name", ["kubernetes.default.svc", "192.0.2.9", "2001:db8::9", ""])
def test_the_name_of_a_server_is_read_and_written(tmp_path: Path, name: str) -> None:
    file = tmp_path / "admin.kubeconfig"
    access = Access(server="https://192.0.2.1:6443", server_name=name)
    file.write_text(kubeconfig.render(access))
    assert kubeconfig.load(file).server_name == name
    cluster = yaml.safe_load(file.read_text())["clusters"][0]["cluster"]
    assert cluster.get("tls-server-name", "") == name


@pytest.mark.parametrize("name", [".example", "a..example", "a" * 64 + ".example", "a\0.example", 5, ["api.example"]])
def test_a_name_of_a_server_that_tls_cannot_use_is_an_error_of_the_file(tmp_path: Path, name: Any) -> None:
    with pytest.raises(KubeconfigError, match=r"tls-server-name: .* is no name or address of a server"):
        kubeconfig.load(written(tmp_path / "admin.kubeconfig", {"tls-server-name": name}))


@pytest.mark.parametrize(
    ("cluster", "user", "named"),
    [
        ({"proxy-url": "http://proxy.example"}, {"token": "t"}, "cluster: proxy-url"),
        ({}, {"token": "t", "as": "somebody", "as-groups": ["g"]}, "user: as, as-groups"),
        ({}, {"exec": {"command": "login"}}, "user: exec"),
        ({}, {"username": "u", "password": "p"}, "user: username, password"),
    ],
)
def test_a_field_that_is_ignored_is_named_in_the_log_without_its_value(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], named: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = written(tmp_path / "admin.kubeconfig", cluster, user)
    with caplog.at_level(logging.WARNING):
        kubeconfig.load(file)
    assert [record.getMessage() for record in caplog.records] == [f"{file}: not supported and ignored for the {named}"]


def test_nothing_is_logged_about_a_kubeconfig_of_supported_fields(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kubeconfig.load(written(tmp_path / "admin.kubeconfig", {"tls-server-name": "api.example"}))
    assert not caplog.records


@pytest.mark.parametrize(
    "content", [b"a: \xff", b"a: 2026-99-99", b"a: !!int secret", b"[" * 100_000, b"\x00", b"a: ["]
)
def test_a_damaged_kubeconfig_is_named_without_its_content(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "admin.kubeconfig"
    file.write_bytes(content)
    with pytest.raises(KubeconfigError, match=r"admin.kubeconfig: cannot be read: ") as raised:
        kubeconfig.load(file)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    "content",
    ["[1]", "5", "contexts: 5\ncurrent-context: a", "contexts: [a]", "contexts: [{name: '', context: text}]"],
)
def test_a_file_with_parts_of_other_types_is_no_kubeconfig(tmp_path: Path, content: str) -> None:
    file = tmp_path / "admin.kubeconfig"
    file.write_text(content)
    with pytest.raises(KubeconfigError, match=r"admin.kubeconfig: not a kubeconfig$"):
        kubeconfig.load(file)


def test_a_folder_is_named_with_the_systems_reason(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError) as raised:
        kubeconfig.load(tmp_path)
    assert str(raised.value) == f"{tmp_path}: cannot be read: Is a directory"
