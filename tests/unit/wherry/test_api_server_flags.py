from __future__ import annotations

from pathlib import Path

import pytest

from control.config import ControlConfig
from control.flags.api_server import FLAGS, SETTINGS
from wherry.api_server_flags import load
from wherry.control_settings import control_config
from wherry.errors import WherryError
from wherry.settings import Settings


def test_flags_are_read_in_upstreams_units_and_reach_the_server(tmp_path: Path) -> None:
    settings = Settings(prefix=str(tmp_path), node_ip="192.0.2.1")
    assert control_config(settings).shutdown_delay == 0
    assert not control_config(settings).service_account_extend_token_expiration
    file = settings.layout.etc / "apiserver.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(
        "audit-log-maxage: 30\naudit-log-maxsize: 1\nshutdown-delay-duration: 1m30s\nanonymous-auth: true\n"
        "api-audiences: a,b\ndisable-admission-plugins: [Priority]\nmin-request-timeout: 60\n"
        "audit-webhook-mode: blocking\nevent-ttl: 2h\ntls-min-version: VersionTLS13\n"
        "service-account-extend-token-expiration: true\n"
        "tls-cipher-suites: [TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256]\n"
    )
    config = control_config(settings)
    assert (config.audit_log_max_age, config.audit_log_max_bytes) == (30 * 24 * 3600, 1024 * 1024)
    assert (config.shutdown_delay, config.anonymous_auth, config.api_audiences) == (90, True, ("a", "b"))
    assert (config.disabled_admission, config.min_watch_timeout, config.event_ttl) == (("Priority",), 60, 7200)
    assert config.audit_webhook_mode == "blocking"
    assert config.tls_cipher_suites == ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",)
    assert config.service_account_extend_token_expiration
    assert config.tls_min_version == "VersionTLS13"


def test_every_flag_has_a_field_and_a_line_in_the_documentation() -> None:
    fields = set(ControlConfig.__struct_fields__)
    text = (Path(__file__).parents[3] / "docs" / "api.md").read_text()
    for field, _ in FLAGS.values():
        assert field in fields
    for flag in SETTINGS:
        assert f"`{flag}`" in text, flag


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("audit-log-max: 1", "audit-log-max: there is no such flag here; there are anonymous-auth"),
        ("etcd-servers: a", "etcd-servers: `wherry up` settles this"),
        ("profiling: true", "--profiling=true is not supported: there is no profiler"),
        ("feature-gates: WatchList=false", "feature is locked to true"),
        ("audit-log-maxage: -1", "audit-log-maxage: -1: must be a whole number"),
        ("request-timeout: soon", "request-timeout: 'soon': invalid duration \"soon\""),
        ("anonymous-auth: 1", "anonymous-auth: 1: must be true or false"),
        ("audit-webhook-mode: later", "must be one of batch, blocking, blocking-strict"),
        ("tls-cipher-suites: TLS_NULL", "Cipher suite TLS_NULL not supported or doesn't exist"),
        ("tls-min-version: VersionTLS10", "TLS 1.2 and 1.3 are served"),
        ("- a", "write a flag's name and its value"),
        ("a: [", "cannot be read"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_flag(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "apiserver.yaml"
    file.write_text(text)
    with pytest.raises(WherryError) as caught:
        load(file)
    assert why in str(caught.value)
