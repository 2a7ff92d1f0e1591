"""gRPC's texts of failed connections, as its library writes them."""

from __future__ import annotations

import pytest

from control.storage.etcd.words import in_words

ALL = "failed to connect to all addresses; last error: UNKNOWN: "


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            f"{ALL}ipv4:127.0.0.1:1: Failed to connect to remote host: Connection refused",
            "127.0.0.1:1: connection refused",
        ),
        (
            f"{ALL}ipv6:%5B::1%5D:2379: Failed to connect to remote host: Connection refused",
            "[::1]:2379: connection refused",
        ),
        (
            f"{ALL}ipv4:192.0.2.1:2379: connection attempt timed out before receiving SETTINGS frame",
            "192.0.2.1:2379: it did not answer in time",
        ),
        (
            f"{ALL}ipv4:192.0.2.1:2379: Failed parsing HTTP/2 (Expected SETTINGS frame as the first frame, got frame type 80) "
            "(Trying to connect an http1.x server (HTTP status 400))",
            "192.0.2.1:2379: it is not etcd",
        ),
        (
            f"{ALL}ipv4:192.0.2.1:2379: Tls handshake failed (TSI_PROTOCOL_FAILURE): SSL_ERROR_SSL: error:100000f7:SSL "
            "routines:OPENSSL_internal:WRONG_VERSION_NUMBER: Invalid certificate verification context: OK",
            "192.0.2.1:2379: it does not use TLS: write http://, or set up TLS in etcd",
        ),
        (
            f"{ALL}ipv4:192.0.2.1:2379: Tls handshake failed (TSI_PROTOCOL_FAILURE): SSL_ERROR_SSL: error:0A000086:SSL "
            "routines::CERTIFICATE_VERIFY_FAILED: self signed certificate: more",
            "192.0.2.1:2379: its certificate is not accepted: self signed certificate",
        ),
        (
            "errors resolving none.invalid:2379: [field:hostname lookup error:address lookup failed for none.invalid:2379: "
            "Domain name not found]",
            "none.invalid: the name cannot be resolved",
        ),
        ("Deadline Exceeded", "it did not answer in time"),
        (f"{ALL}ipv4:192.0.2.1:2379: a text of a later version", "192.0.2.1:2379: a text of a later version"),
        ("etcdserver: mvcc: database space exceeded", "etcdserver: mvcc: database space exceeded"),
        ("", ""),
    ],
)
def test_a_text_about_a_connection_is_the_address_and_the_reason(text: str, words: str) -> None:
    assert in_words(text) == words
