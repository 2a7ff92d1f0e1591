"""Configuration of credential provider plugins: fields that are read, and mistakes that are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.images.credentials import configuration
from agent.kubelet_configuration import ConfigError

PLUGIN = {
    "name": "vault",
    "matchImages": ["*.test"],
    "defaultCacheDuration": "10m",
    "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
}
TOKEN = {"serviceAccountTokenAudience": "a", "requireServiceAccount": True, "cacheType": "Token"}


def file(*providers: dict[str, object]) -> str:
    head = {"kind": "CredentialProviderConfig", "apiVersion": "kubelet.config.k8s.io/v1"}
    return json.dumps({**head, "providers": providers})


def test_a_folder_of_configurations_is_read_in_order(tmp_path: Path) -> None:
    for name in ("b.yaml", "a.json"):
        (tmp_path / name).write_text(file({**PLUGIN, "name": name[0]}))
    (tmp_path / "notes.txt").write_text("not this")
    found = configuration.load(tmp_path)
    assert [provider.name for provider in found] == ["a", "b"] and found[0].default_cache_seconds == 600.0


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (file(), "at least 1 item in plugins"),
        (file({**PLUGIN, "name": "a/b"}), "file name"),
        (file({**PLUGIN, "name": ".."}), "file name"),
        (file(PLUGIN, PLUGIN), "duplicated"),
        (file({**PLUGIN, "matchImages": []}), "matchImages"),
        (file({**PLUGIN, "defaultCacheDuration": "soon"}), "defaultCacheDuration"),
        (file({**PLUGIN, "apiVersion": "v1"}), "unsupported apiVersion"),
        (file({**PLUGIN, "matchImage": ["*"]}), "matchImage"),
        (file({**PLUGIN, "tokenAttributes": {**TOKEN, "cacheType": "Pod"}}), "cacheType"),
        (file({**PLUGIN, "tokenAttributes": {**TOKEN, "serviceAccountTokenAudience": ""}}), "Audience is required"),
        (
            file({**PLUGIN, "apiVersion": "credentialprovider.kubelet.k8s.io/v1beta1", "tokenAttributes": TOKEN}),
            "only supported",
        ),
        (file().replace("CredentialProviderConfig", "Pod"), "expected"),
        ("[", "line 1"),
    ],
)
def test_a_bad_configuration_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "plugins.yaml").write_text(text)
    with pytest.raises(ConfigError, match=complaint):
        configuration.load(tmp_path / "plugins.yaml")
