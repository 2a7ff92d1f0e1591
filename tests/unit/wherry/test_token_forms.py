"""Tokens of usual providers, keys of age and further notations of secrets stay out of bug reports."""

from __future__ import annotations

import pytest

from tests.support.cost import Case, judge_time
from wherry.redaction import REMOVED, redacted, without_values


@pytest.mark.parametrize(
    "text",
    [
        "sk_live_hunter2hunter2",
        "rk_test_hunter2hunter2",
        "hf_hunter2hunter2hunter2",
        "glsa_hunter2hunter2_0a",
        "glrt-hunter2hunter2",
        "glpat-aaaaaaaaaaaa.01.hunter2",
        "dop_v1_hunter2hunter2",
        "shpat_hunter2hunter2",
        "pypi-AgEIhunter2hunter2",
        "xapp-1-hunter2hunter2",
        "ATATT3xhunter2hunter2=hunter2",
        "NRAK-hunter2hunter2",
        "sq0csp-hunter2hunter2",
        "https://api.telegram.org/bot12345:hunter2/sendMessage",
        "https://discord.com/api/webhooks/12345/hunter2",
        "https://discordapp.com/api/v10/webhooks/12345/hunter2",
        "JWT_KEY=hunter2",
        "APP_KEY=base64:hunter2",
        '{"hmacKey":"hunter2"}',
        "enc_key=hunter2",
        "licenseKey: hunter2",
        "psk=hunter2",
        "--psk hunter2",
        "wpa_psk=hunter2",
        "machine h login u password hunter2",
        "machine h\nlogin u\npassword hunter2",
        "bindpw hunter2",
        "kubectl -n a create secret generic x --from-literal=key=hunter2",
        "kubectl create secret generic x --from-literal key='hunter2 hunter2'",
        r"kubectl create secret generic x --from-literal=key=\"hunter2 hunter2\"",
        "oc create secret generic x --from-literal='key=hunter2 hunter2'",
    ],
)
def test_usual_forms_are_removed(text: str) -> None:
    found = redacted(f"a {text}\nb")
    assert "hunter2" not in found and found.startswith("a ") and found.endswith("\nb")


@pytest.mark.parametrize("text", ["{}", "key: {}", "age: {} a", 'SOPS_AGE_KEY="{}"', "--key={}"])
@pytest.mark.parametrize("kind", ["AGE-SECRET-KEY-1", "AGE-SECRET-KEY-PQ-1", "age-secret-key-1"])
def test_private_keys_of_age_are_removed(text: str, kind: str) -> None:
    found = redacted(text.format(f"{kind}QQPQZ3ZJ2Y6R0VNXJ4E7WQ9KDLHF8TUCSG5A3PXM7V2N6RW0JYEQAA"))
    assert "QQPQZ3" not in found and "EQAA" not in found and REMOVED in found


def test_literal_values_of_secrets_in_arguments_are_removed() -> None:
    head = ["kubectl", "create", "secret", "generic", "x"]
    found = without_values({"command": [*head, "--from-literal", "key=hunter2", "--from-literal=a=hunter2"]})
    assert found["command"] == [*head, "--from-literal", REMOVED, REMOVED]


@pytest.mark.parametrize(
    "text",
    [
        "HIGH:!aNULL:!PSK:!SRP DHE-PSK-AES128-CBC-SHA:RSA-PSK:kPSK: x",
        "hf_transfer sk_test shpat_ glsa pypi-a xapp-x: the machine has no login, its password is set",
        "application-key-value turnkey=yes",
        "kubectl create configmap x --from-literal=key=value",
        "https://api.telegram.org/ https://discord.com/api/webhooks",
    ],
)
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert redacted(text) == text


@pytest.mark.parametrize(
    "unit",
    [
        "AGE-SECRET-KEY-1",
        "sk_live_",
        "glpat-",
        "xapp-1-aaaaaaaa.",
        "npm_aaaaaaaa",
        "api.telegram.org/bot1",
        "discord.com/api/webhooks/1/",
        "machine a login b password ",
        "machine a ",
        "machine login ",
        "psk",
        "--psk",
        "kubectl secret --from-literal",
        "--from-literal=a='",
        '--from-literal a="',
    ],
)
def test_time_is_proportional_to_the_text(unit: str) -> None:
    judge_time(Case(unit, lambda size: unit * (size // len(unit)), redacted))
