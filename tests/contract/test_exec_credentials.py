"""Credential plugins: their request, their answers, and their limits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kube.exec_credentials import ClusterInfo, Plugin, credentials, plugin_of
from kube.kubeconfig import KubeconfigError

V1 = "client.authentication.k8s.io/v1"


def plugin(folder: Path, script: str, **settings: Any) -> Plugin:
    path = folder / "login"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    inner = {"apiVersion": V1, "command": "./login", **settings}
    return plugin_of(inner, folder, ClusterInfo("https://cluster", "name", insecure=True, ca=b"ca"))


def answer(version: str = V1, **status: str) -> str:
    document = {"apiVersion": version, "kind": "ExecCredential", "status": status}
    return f"cat <<'END'\n{json.dumps(document)}\nEND"


async def test_a_plugin_gets_its_arguments_and_variables_and_the_cluster_and_answers_a_token(tmp_path: Path) -> None:
    script = f'echo "$1 $2 $KEY" >{tmp_path}/given; echo "$KUBERNETES_EXEC_INFO" >{tmp_path}/info\n{answer(token="t")}'
    found = plugin(tmp_path, script, args=["a b", "c"], env=[{"name": "KEY", "value": "v"}], provideClusterInfo=True)
    assert (await credentials(found)).token == "t"
    assert (tmp_path / "given").read_text() == "a b c v\n"
    info = json.loads((tmp_path / "info").read_text())
    assert info["apiVersion"] == V1 and info["kind"] == "ExecCredential" and info["spec"]["interactive"] is False
    assert info["spec"]["cluster"] == {
        "server": "https://cluster",
        "tls-server-name": "name",
        "insecure-skip-tls-verify": True,
        "certificate-authority-data": "Y2E=",
    }


async def test_a_certificate_is_an_answer_too(tmp_path: Path) -> None:
    found = await credentials(plugin(tmp_path, answer(clientCertificateData="c", clientKeyData="k")))
    assert (found.client_certificate_data, found.client_key_data, found.token) == ("c", "k", "")


WRONG = {
    "exit 3": "failed with exit code 3",
    "echo secret": "printed no ExecCredential$",
    answer(
        version="client.authentication.k8s.io/v1beta1", token="t"
    ): "and client.authentication.k8s.io/v1 is asked for",
    answer(): "neither a token nor a certificate",
    answer(clientCertificateData="c"): "a certificate without its key",
    "head -c 2000000 /dev/zero": "more than 1 MiB",
    "exec sleep 30": "has not ended after 0.3 s",
    "sleep 30 & exit 0": "has not ended after 0.3 s",
}


@pytest.mark.parametrize("script", WRONG)
async def test_what_goes_wrong_is_one_sentence_that_names_the_plugin(tmp_path: Path, script: str) -> None:
    limit = 0.3 if "sleep" in script else 30
    with pytest.raises(KubeconfigError, match=rf"^the credential plugin {tmp_path}/login .*{WRONG[script]}"):
        await credentials(plugin(tmp_path, script), limit)


async def test_a_plugin_that_is_not_installed_is_named_with_its_hint(tmp_path: Path) -> None:
    missing = plugin_of(
        {"apiVersion": V1, "command": "no-such-login", "installHint": "get it\nfrom x"}, tmp_path, ClusterInfo("")
    )
    with pytest.raises(KubeconfigError, match="no-such-login cannot be run: No such file or directory: get it from x"):
        await credentials(missing)


async def test_a_plugin_that_needs_a_person_is_refused_without_a_terminal(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match="asks questions: run this command in a terminal"):
        await credentials(plugin(tmp_path, answer(token="t"), interactiveMode="Always"))
