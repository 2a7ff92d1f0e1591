from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kube import pki
from kube.bootstrap_tokens import NODE_GROUP, Token
from wherry import tokens
from wherry.errors import WherryError
from wherry.settings import Settings

TOKEN = Token("abcdef", "0123456789abcdef")
NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"), [("24h", 86400), ("1h30m", 5400), ("45s", 45), ("1h0m5s", 3605), ("0", 0), ("0s", 0)]
)
def test_a_time_to_live_is_written_as_with_kubeadm(text: str, seconds: int) -> None:
    assert tokens.lifetime(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "24", "1d", "-1h", "1m1h", "h"])
def test_another_time_to_live_is_refused_with_its_form(text: str) -> None:
    with pytest.raises(WherryError, match="write it as in 24h"):
        tokens.lifetime(text)


def test_a_time_to_live_has_a_limit() -> None:
    assert tokens.lifetime("876000h") == tokens.LONGEST
    with pytest.raises(WherryError, match="at most 876000h; 0 is for ever"):
        tokens.lifetime("876000h1s")
    with pytest.raises(WherryError, match="at most 876000h; 0 is for ever"):
        tokens.lifetime("99999999999999h")


def test_a_token_is_a_secret_in_upstreams_form() -> None:
    made = tokens.secret(TOKEN, NOW, "for a test", (NODE_GROUP,))
    assert (made.metadata.name, made.metadata.namespace) == ("bootstrap-token-abcdef", "kube-system")
    assert made.type == "bootstrap.kubernetes.io/token"
    assert {key: base64.b64decode(text).decode() for key, text in made.data.items()} == {
        "token-id": "abcdef",
        "token-secret": "0123456789abcdef",
        "usage-bootstrap-authentication": "true",
        "usage-bootstrap-signing": "true",
        "auth-extra-groups": "system:bootstrappers:wherry:default-node-token",
        "description": "for a test",
        "expiration": "2026-05-01T12:00:00Z",
    }


def test_a_token_for_ever_has_no_expiration() -> None:
    assert {"expiration", "description"}.isdisjoint(tokens.secret(TOKEN, None, "", ()).data)


def test_a_tokens_lifetime_is_shown_in_two_units() -> None:
    assert tokens.left(NOW + timedelta(hours=23, minutes=59, seconds=30), NOW) == "23 h 59 min"
    assert tokens.left(NOW - timedelta(seconds=1), NOW) == "<expired>"


def test_the_line_to_join_names_server_token_and_the_cas_hash(tmp_path: Path) -> None:
    settings = Settings(prefix=str(tmp_path), node_ip="192.0.2.10")
    ca = pki.new_ca("kubernetes", NOW)
    ca.save(settings.layout.pki, "ca")
    assert tokens.join_command(settings, TOKEN) == (
        "wherry join https://192.0.2.10:6443 --token abcdef.0123456789abcdef "
        f"--discovery-token-ca-cert-hash {pki.ca_hash(ca.certificate)}"
    )
