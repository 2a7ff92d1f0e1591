"""Several kubeconfigs in one: the first file with a name wins, as in kubectl; credential plugins are found, not run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from kube.kubeconfig import KubeconfigError
from kube.kubeconfig_files import merged

EXEC = {
    "apiVersion": "client.authentication.k8s.io/v1",
    "command": "./login",
    "args": ["a"],
    "env": [{"name": "X", "value": "1"}],
}


def write(
    path: Path, *names: str, current: str = "", server: str = "https://one", user: dict[str, Any] | None = None
) -> Path:
    document = {
        "current-context": current,
        "clusters": [{"name": name, "cluster": {"server": f"{server}/{name}"}} for name in names],
        "users": [{"name": name, "user": user or {"token": f"{server}-{name}"}} for name in names],
        "contexts": [
            {"name": name, "context": {"cluster": name, "user": name, "namespace": server[8:]}} for name in names
        ],
    }
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump(document))
    return path


def test_the_first_file_with_a_name_wins_and_so_does_its_current_context(tmp_path: Path) -> None:
    files = [
        write(tmp_path / "a", "shared"),
        write(tmp_path / "b", "shared", "own", current="shared", server="https://two"),
        write(tmp_path / "c", "own", current="own", server="https://three"),
    ]
    found = merged(files).access
    assert (found.server, found.token, found.namespace) == ("https://one/shared", "https://one-shared", "one")
    assert merged(files, "own").access.server == "https://two/own"
    assert merged(list(reversed(files))).access.server == "https://three/own"
    assert merged(list(reversed(files)), "shared").access.server == "https://two/shared"


def test_missing_files_are_left_out_unless_it_is_all_of_them(tmp_path: Path) -> None:
    assert merged([tmp_path / "none", write(tmp_path / "a", "x", current="x")]).access.server == "https://one/x"
    with pytest.raises(KubeconfigError, match="none: no such file"):
        merged([tmp_path / "none", tmp_path / "neither"])


def test_paths_are_relative_to_the_file_that_has_them(tmp_path: Path) -> None:
    write(tmp_path / "one/config", "x", current="x", user={"tokenFile": "token"})
    second = write(tmp_path / "two/config", "y", user={"exec": EXEC})
    found = merged([tmp_path / "one/config", second])
    assert found.access.token_file == str(tmp_path / "one/token") and found.plugin is None
    plugin = merged([tmp_path / "one/config", second], "y").plugin
    assert plugin is not None and plugin.command == str(tmp_path / "two/login")
    assert plugin.arguments == ("a",) and plugin.variables == {"X": "1"}


def test_a_token_makes_a_plugin_needless_and_an_unknown_version_is_one_sentence(tmp_path: Path) -> None:
    assert merged([write(tmp_path / "a", "x", current="x", user={"exec": EXEC, "token": "t"})]).plugin is None
    old = EXEC | {"apiVersion": "client.authentication.k8s.io/v1alpha1"}
    with pytest.raises(KubeconfigError, match=r"'./login' has apiVersion .*v1alpha1': use .*/v1 or .*/v1beta1"):
        merged([write(tmp_path / "b", "x", current="x", user={"exec": old})])


@pytest.mark.parametrize("text", ["[]", "users: 1", "users: [1]", "contexts: [{context: {}}]", "a: b", ""])
def test_what_is_no_kubeconfig_is_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "a").write_text(text)
    with pytest.raises(KubeconfigError, match=r"not a kubeconfig|no context is chosen"):
        merged([tmp_path / "a"])


@pytest.mark.parametrize(
    "restriction", [{"as": "dev"}, {"as-uid": "1"}, {"as-groups": ["dev"]}, {"as-user-extra": {"scopes": ["view"]}}]
)
def test_impersonation_is_refused_because_requests_would_have_more_rights(
    tmp_path: Path, restriction: dict[str, Any]
) -> None:
    file = write(tmp_path / "a", "one", current="one", user={"token": "t", **restriction})
    (name,) = restriction
    with pytest.raises(KubeconfigError, match=f"^{file}: not supported for the user: {name}: choose a context without"):
        merged([file])


def test_a_proxy_is_refused_because_requests_would_pass_it_by(tmp_path: Path) -> None:
    file = write(tmp_path / "a", "one", current="one")
    document = yaml.safe_load(file.read_text())
    document["clusters"][0]["cluster"]["proxy-url"] = "http://proxy.example"
    file.write_text(yaml.safe_dump(document))
    with pytest.raises(KubeconfigError, match=r"not supported for the cluster: proxy-url"):
        merged([file])
