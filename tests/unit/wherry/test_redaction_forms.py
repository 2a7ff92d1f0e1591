"""More forms of secrets that a bug report must not contain, with generated secrets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cost import Case, judge_time
from wherry.redaction import REMOVED, redacted, without_values

HEX = st.text("0123456789abcdef", min_size=32, max_size=32)
RAW = st.text("abcXYZ019/<>?#:;,+=%!$&*()~^.-_", min_size=1, max_size=40)
"""Characters of passwords that a URL should have encoded."""
FORMS = [
    "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n{}\n-----END PGP PRIVATE KEY BLOCK-----",
    "-----BEGIN PGP PRIVATE KEY BLOCK-----\n{}",
    "jdbc:oracle:thin:scott/{}@db:1521/x",
    "//user:{}@host/share",
    *(f"{start}{{}}" for start in ("tskey-auth-", "tskey-client-", "lin_api_", "PMAK-", "HRKU-", "dp.pt.", "dp.st.")),
    *(f"{start}{{}}" for start in ("gsk_", "sbp_", "nfp_", "ntn_", "r8_", "xai-", "dapi")),
    "AbCdEfGhIjKlMn.atlasv1.{}",
    *("http -a user:{} GET x", "https --auth=user:{} x", "net ads join -U u%{}", "net rpc info -U u%{} -S h"),
    *("ngrok authtoken {}", "ngrok config add-authtoken {}", "rclone obscure {}", "steghide extract -p {} -sf x"),
    *("smbpasswd -w {}", "psexec -u u -p {} cmd", "aws configure set aws_secret_access_key {}"),
    *(
        "aws configure set aws_session_token {} --profile p",
        "https://x.webhook.office.com/webhookb2/{}/IncomingWebhook/a",
    ),
    "123456789:AA{}x",
    *("SharedAccessSignature={}", "certificate-key {0}{0}", "creds={}", "SSH_KEY={}", "GPG_KEY={}", "basicAuth: u:{}"),
    *("password='a'\\''{}'", "sh -c \"password='a'\\\\''{}'\"", "password='a b'\\'' c'\\''{}' run"),
    *("password=abc\\ {}", "run --password abc\\ d\\ {}", '{{"m":"password=abc\\\\ {}"}}', "password->{}"),
    *(
        f"{start}{{}}"
        for start in (
            "H4sIAAAAAAAA",
            "UEsDBBQAAAAI",
            "KLUv/SRY",
            "/Td6WFoAAATm",
            "QlpoOTFBWSZT",
            f"eJ{'x' * 64}",
            "W3si",
        )
    ),
    *("unrar x -p{} a.rar", "rar a -p{} a.rar", "xfreerdp /u:a /p:{} /v:h"),
]


@pytest.mark.parametrize("form", FORMS)
@given(secret=HEX)
def test_generated_secrets_are_removed_from_every_form(form: str, secret: str) -> None:
    found = redacted(f"a {form.format(secret)}\nb")
    assert secret not in found and REMOVED in found and found.startswith("a ")


@given(RAW, st.sampled_from(["postgres", "https", "amqp", "mongodb+srv"]))
def test_passwords_of_urls_are_removed_with_any_character(password: str, scheme: str) -> None:
    secret = f"hunter2{password}hunter2"
    found = redacted(f"a {scheme}://user:{secret}@host.example/db b")
    assert "hunter2" not in found and found.startswith(f"a {scheme}://") and found.endswith("@host.example/db b")


@pytest.mark.parametrize("data", ["s3cr3t", ["s3cr3t", ["s3cr3t"], {"a": "s3cr3t"}]])
@pytest.mark.parametrize("field", ["data", "stringData", "binaryData"])
def test_data_of_another_form_than_a_map_is_removed(field: str, data: object) -> None:
    assert "s3cr3t" not in str(without_values({"kind": "Secret", field: data}))


def test_passwords_in_lists_of_arguments_are_removed() -> None:
    assert without_values(["http", "-a", "user:hunter2", "x"]) == ["http", "-a", REMOVED, "x"]
    assert without_values(["ngrok", "config", "add-authtoken", "hunter2"]) == [
        "ngrok",
        "config",
        "add-authtoken",
        REMOVED,
    ]


@pytest.mark.parametrize(
    "text",
    [
        "https://r.test:5000/team/app@sha256:0123",
        "http://10.0.0.1:80/a?mail=u@h.example -a x:y",
        "the net -U a%b is up; net: eth0",
        "pod xai-controller-manager-0123456789 r8_x gsk_short dapicluster",
        "-----BEGIN PGP PUBLIC KEY BLOCK-----\nabc",
        "// comment: a@b.example",
        "s3://bucket/http https://x/-a",
    ],
)
def test_similar_texts_stay_as_they_are(text: str) -> None:
    assert redacted(text) == text


@pytest.mark.parametrize(
    "unit",
    [
        *(
            "://a:",
            "://a:b<",
            "//a:",
            " //a:b",
            "jdbc:oracle:thin:",
            "jdbc:oracle:thin:a/b",
            " /p:",
            "http -a",
            "net ads ",
        ),
        *("-----BEGIN PGP PRIVATE KEY BLOCK-----", "tskey-auth-", "dp.pt.", "a.atlasv1.", "http ", "://:"),
        *("password='a'\\''", "'\\''", "token=a\\ ", "--token a\\ ", "certificate-key ", "password->"),
    ],
)
def test_time_of_these_forms_is_proportional_to_the_text(unit: str) -> None:
    judge_time(Case(unit, lambda size: unit * (size // len(unit)), redacted))
