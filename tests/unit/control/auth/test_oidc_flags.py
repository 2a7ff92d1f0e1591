from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from control.auth.fields import ConfigurationError
from control.auth.oidc_flags import authentication
from control.config import ControlConfig

URL = "https://id.example.com"
NOWHERE = Path("/nowhere")


def config(**changes: Any) -> ControlConfig:
    return ControlConfig(*[NOWHERE] * 5, **{"oidc_issuer_url": URL, "oidc_client_id": "kube", **changes})


@pytest.mark.parametrize(
    ("changes", "claim", "prefix"),
    [
        ({}, "sub", f"{URL}#"),
        ({"oidc_username_claim": "email"}, "email", ""),
        ({"oidc_username_prefix": "-"}, "sub", ""),
        ({"oidc_username_prefix": "oidc:", "oidc_username_claim": "name"}, "name", "oidc:"),
    ],
)
def test_the_flags_stand_for_one_issuer(changes: dict[str, str], claim: str, prefix: str) -> None:
    (issuer,) = authentication(config(**changes)).issuers
    assert (issuer.url, issuer.audiences) == (URL, ("kube",))
    assert (issuer.username.claim, issuer.username.prefix, issuer.groups) == (claim, prefix, None)


def test_groups_and_claims_that_must_be_there() -> None:
    found = authentication(
        config(oidc_groups_claim="roles", oidc_groups_prefix="g:", oidc_required_claim={"hd": "example.com"})
    )
    (issuer,) = found.issuers
    assert issuer.groups is not None and (issuer.groups.claim, issuer.groups.prefix) == ("roles", "g:")
    assert issuer.required == {"hd": "example.com"}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"oidc_client_id": ""}, "must be specified together"),
        ({"authentication_config_file": NOWHERE}, "mutually exclusive"),
        ({"oidc_issuer_url": "http://id.example.com"}, "must be an https URL"),
    ],
)
def test_flags_that_do_not_go_together_stop_the_server(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        authentication(config(**changes))


def test_without_the_flags_there_is_no_issuer() -> None:
    assert authentication(config(oidc_issuer_url="", oidc_client_id="")).issuers == ()
