from __future__ import annotations

import base64
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from control.admission.webhooks.credentials import NOBODY, load
from control.auth.fields import ConfigurationError
from kube import kubeconfig, pki
from kube.kubeconfig import KubeconfigError

HEAD = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration"}


def written(folder: Path, **users: Any) -> dict[str, Any]:
    file = folder / "webhooks.kubeconfig"
    file.write_text(yaml.safe_dump({"users": [{"name": name, "user": user} for name, user in users.items()]}))
    return {**HEAD, "kubeConfigFile": str(file)}


def test_users_are_found_by_the_host_that_they_are_meant_for(tmp_path: Path) -> None:
    users = {
        "a.shop.svc": {"token": "exact"},
        "a.shop.svc:8443": {"token": "port"},
        "*.shop.svc": {"username": "jane", "password": "x"},
        "*": {"token": "any"},
    }
    found = load([written(tmp_path, **users), {}])
    assert found.of("a.shop.svc:443").authorization == "Bearer exact"
    assert found.of("a.shop.svc:8443").authorization == "Bearer port"
    assert found.of("b.shop.svc:443").authorization == "Basic " + base64.b64encode(b"jane:x").decode()
    assert found.of("hooks.example.com:443").authorization == "Bearer any"
    assert load([{}]).of("a.shop.svc:443") == NOBODY


def test_the_user_of_the_current_context_is_for_everybody_else(tmp_path: Path) -> None:
    reported = written(tmp_path, usual={"token": "usual"})
    file = Path(reported["kubeConfigFile"])
    more = {"contexts": [{"name": "c", "context": {"user": "usual"}}], "current-context": "c"}
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), **more}))
    assert load([reported]).of("x:443").authorization == "Bearer usual"


def test_a_certificate_is_shown_and_a_bad_one_stops_the_server(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    pair = pki.issue(pki.new_ca("ca", now), "server", now=now)
    (tmp_path / "c.crt").write_bytes(pair.cert_pem)
    data = base64.b64encode(pair.key_pem).decode()
    found = load([written(tmp_path, **{"*": {"client-certificate": "c.crt", "client-key-data": data}})])
    assert b"BEGIN CERTIFICATE" in found.of("x:443").certificate
    with pytest.raises(ConfigurationError, match="kubeConfigFile"):
        load([written(tmp_path, **{"*": {"client-certificate": "c.crt"}})])
    with pytest.raises(ConfigurationError, match="must be a WebhookAdmissionConfiguration"):
        load([{"kind": "Other"}])


def test_a_certificate_or_token_that_is_renewed_is_shown_and_half_a_pair_is_not(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    authority = pki.new_ca("ca", now)
    first, second = (pki.issue(authority, "server", now=now) for _ in range(2))
    first.save(tmp_path, "c")
    (tmp_path / "token").write_text("old")
    user = {"client-certificate": "c.crt", "client-key": "c.key", "tokenFile": "token"}
    found = load([written(tmp_path, **{"*": user})])
    assert found.of("x:443").certificate.startswith(first.cert_pem.strip())
    (tmp_path / "c.crt").write_bytes(second.cert_pem)
    assert found.of("x:443").certificate.startswith(first.cert_pem.strip())
    second.save(tmp_path, "c")
    (tmp_path / "token").write_text("newer")
    assert found.of("x:443").certificate.startswith(second.cert_pem.strip())
    assert found.of("x:443").authorization == "Bearer newer"


@pytest.mark.parametrize("written", ["token: hunter2: x", 'token: "hunter2', "token: *hunter2", "token: !hunter2!x y"])
def test_no_text_of_a_kubeconfig_is_in_the_error_that_it_is_no_yaml(written: str, tmp_path: Path) -> None:
    """It may be a token or a key, and the error is in the log of a daemon."""
    path = tmp_path / "a.kubeconfig"
    path.write_text(f"users:\n- name: a\n  user:\n    {written}\n")
    with pytest.raises(KubeconfigError, match=r"invalid YAML in line \d") as first:
        kubeconfig.load(path)
    with pytest.raises(ConfigurationError, match=r"invalid YAML in line \d") as second:
        load([{**HEAD, "kubeConfigFile": str(path)}])
    for error in (first, second):
        assert "hunter2" not in str(error.value) and error.value.__cause__ is None
