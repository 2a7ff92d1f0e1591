from __future__ import annotations

import base64
import ssl
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from kube import kubeconfig, pki
from kube.client import Response
from kube.errors import StatusError
from kube.kubeconfig import Access
from wherry import discovery, join
from wherry.errors import WherryError

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
ACCESS = Access(server="https://10.0.0.1:6443")
TOKEN, PIN = "abcdef.0123456789abcdef", "sha256:" + "ab" * 32


@pytest.mark.parametrize(
    ("typed", "url"),
    [
        ("https://10.0.0.1:6443", "https://10.0.0.1:6443"),
        ("10.0.0.1:7443", "https://10.0.0.1:7443"),
        ("https://master.example", "https://master.example:6443"),
        ("https://[fd00::1]:6443/", "https://[fd00::1]:6443"),
    ],
)
def test_a_servers_address_may_leave_out_what_is_usual(typed: str, url: str) -> None:
    assert discovery.server_url(typed) == url


@pytest.mark.parametrize("typed", ["http://10.0.0.1:6443", "https://", "https://h:port", "https://h:6443/api", ""])
def test_what_is_not_a_servers_address_is_refused_with_an_example(typed: str) -> None:
    with pytest.raises(WherryError, match=r"write it as in https://10\.0\.0\.1:6443"):
        discovery.server_url(typed)


@pytest.mark.parametrize("typed", ["", "ab" * 32, "sha1:" + "ab" * 32, "sha256:" + "ab" * 31, "sha256:" + "xy" * 32])
def test_what_is_not_a_hash_is_refused_with_its_form(typed: str) -> None:
    with pytest.raises(WherryError, match="sha256: and 64 hexadecimal digits"):
        discovery.ca_pin(typed)


@pytest.mark.parametrize(
    ("given", "named", "output"),
    [
        (("10.0.0.1", "", PIN), {}, "--token and --discovery-token-ca-cert-hash are needed"),
        (("10.0.0.1", TOKEN, ""), {}, "--token and --discovery-token-ca-cert-hash are needed"),
        (("10.0.0.1", "nonsense", PIN), {}, "as in abcdef.0123456789abcdef"),
        (("10.0.0.1", TOKEN, PIN), {"control_plane": True}, "--control-plane and --certificate-key go together"),
        (("10.0.0.1", TOKEN, PIN), {"certificate_key": "ab" * 32}, "--control-plane and --certificate-key go together"),
        (("10.0.0.1", TOKEN, PIN), {"control_plane": True, "certificate_key": "ab"}, "64 hexadecimal digits"),
    ],
)
def test_wrong_arguments_are_reported_before_anything_is_done(
    given: tuple[str, str, str], named: dict[str, Any], output: str
) -> None:
    with pytest.raises(WherryError, match=output):
        join.credentials(*given, **named)


def answer(date: datetime) -> Response:
    return Response(200, {"Date": f"{date:%a, %d %b %Y %H:%M:%S} GMT"}, b"")


@pytest.mark.parametrize(
    ("skew", "output"),
    [
        (timedelta(hours=3, minutes=20), "3 h 20 min ahead of"),
        (timedelta(days=-400), "400 d behind"),
        (timedelta(minutes=-3), "3 min behind"),
    ],
)
def test_clocks_that_are_too_far_apart_are_reported_with_both_times(skew: timedelta, output: str) -> None:
    with pytest.raises(WherryError, match=f"this machine's clock is {output}") as caught:
        discovery.check_clock(answer(NOW), NOW + skew)
    assert "2026-05-01 12:00:00 there" in str(caught.value)


def test_clocks_that_are_nearly_right_are_let_pass() -> None:
    for seconds in (-100, 0, 100):
        discovery.check_clock(answer(NOW), NOW + timedelta(seconds=seconds))
    discovery.check_clock(Response(200, {}, b""), NOW)


def test_a_date_without_a_time_zone_is_in_utc_and_others_that_cannot_be_read_count_as_none() -> None:
    """RFC 5322 has "-0000" for UTC without a local time zone; anybody may answer before the CA is verified."""
    naive = Response(200, {"Date": f"{NOW:%a, %d %b %Y %H:%M:%S} -0000"}, b"")
    discovery.check_clock(naive, NOW)
    with pytest.raises(WherryError, match="this machine's clock is 3 h ahead of"):
        discovery.check_clock(naive, NOW + timedelta(hours=3))
    for text in (
        "",
        "now",
        "Fri, 01 May 2026 12:00:00 +9999",
        "Fri, 01 May 99999999999999999999 12:00:00 GMT",
        "9" * 5000,
    ):
        discovery.check_clock(Response(200, {"Date": text}, b""), NOW)


def document(*authorities: pki.KeyPair) -> str:
    bundle = b"".join(authority.cert_pem for authority in authorities)
    return kubeconfig.render_cluster(Access(server="https://10.0.0.1:6443", ca=bundle))


def test_the_ca_is_taken_where_its_hash_is_the_one_given() -> None:
    ca, other = pki.new_ca("kubernetes", NOW), pki.new_ca("kubernetes", NOW)
    bundle, pinned = discovery._authorities(document(ca, other), pki.ca_hash(other.certificate))
    assert bundle == ca.cert_pem + other.cert_pem
    assert pinned == other.cert_pem, "a CA whose hash was not given is not to be trusted yet"
    with pytest.raises(WherryError, match=f"has the hash {pki.ca_hash(ca.certificate)}, not the one given"):
        discovery._authorities(document(ca), pki.ca_hash(other.certificate))


@pytest.mark.parametrize("text", ["", "[]", "clusters: []", "{", yaml.safe_dump({"clusters": [{"cluster": {}}]})])
def test_a_document_without_a_ca_is_an_error(text: str) -> None:
    with pytest.raises(WherryError, match="names no CA"):
        discovery._authorities(text, PIN)


def test_the_document_is_a_kubeconfig_without_a_user() -> None:
    ca = pki.new_ca("kubernetes", NOW)
    shown = yaml.safe_load(document(ca))
    assert (shown["kind"], shown["users"]) == ("Config", None)
    assert shown["clusters"][0]["cluster"]["server"] == "https://10.0.0.1:6443"
    assert base64.b64decode(shown["clusters"][0]["cluster"]["certificate-authority-data"]) == ca.cert_pem


def failed(cause: BaseException) -> StatusError:
    error = StatusError(503, "ServiceUnavailable", "cannot reach the API server at https://10.0.0.1:6443: so it is")
    error.__cause__ = cause
    return error


def verification(message: str) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, message)
    error.verify_message = message
    return error


@pytest.mark.parametrize(
    ("cause", "output"),
    [
        (TimeoutError(), "no API server answers at https://10.0.0.1:6443 within 10 s"),
        (ssl.SSLError(1, "wrong version number"), "does not speak TLS"),
        (verification("certificate is not yet valid"), "is a clock wrong"),
        (verification("certificate has expired"), "is a clock wrong"),
        (verification("IP address mismatch, certificate is not valid for '10.0.0.1'."), "does not name 10.0.0.1"),
        (verification("unable to get local issuer certificate"), "not from the cluster's CA"),
        (ConnectionRefusedError(111, "Connection refused"), "check the address, and that the server runs"),
    ],
)
def test_a_connection_error_is_one_sentence(cause: BaseException, output: str) -> None:
    assert output in str(discovery.unreachable(ACCESS, failed(cause), NOW))
