"""Changes that routes make: headers, paths and redirects. Their authors may write anything."""

from __future__ import annotations

import pytest

from kube.gateway.model import HeaderChange, PathChange, Redirect
from netproxy.gateway.errors import Refused
from netproxy.gateway.header_changes import HeaderEdit
from netproxy.gateway.path_changes import PathEdit, redirect_location, redirect_status
from netproxy.gateway.request_target import normalize_path, split
from netproxy.gateway.rule import CompiledFilters, Filters

FRAMING = (
    "Connection",
    "Content-Length",
    "Transfer-Encoding",
    "Host",
    "Upgrade",
    "TE",
    "Trailer",
    "Keep-Alive",
    "CDN-Loop",
)


@pytest.mark.parametrize("name", FRAMING)
def test_headers_of_the_connection_cannot_be_changed(name: str) -> None:
    change = HeaderChange(set=((name, "x"),), add=((name, "y"),), remove=(name,))

    assert HeaderEdit(change).apply([(name.lower().encode(), b"kept")]) == [(name.lower().encode(), b"kept")]


@pytest.mark.parametrize(
    ("name", "value"), [("x a", "1"), ("x\r\nhost", "1"), ("", "1"), ("x", "a\r\nhost: b"), ("x", "a\0"), ("ä", "1")]
)
def test_headers_that_would_break_the_head_are_left_out(name: str, value: str) -> None:
    assert HeaderEdit(HeaderChange(set=((name, value),), add=((name, value),))).apply([]) == []


def test_set_replaces_all_values_add_keeps_them_and_remove_ignores_case() -> None:
    change = HeaderChange(set=(("A", "1"),), add=(("B", "2"),), remove=("C",))

    found = HeaderEdit(change).apply([(b"a", b"x"), (b"a", b"y"), (b"b", b"x"), (b"c", b"x")])
    assert found == [(b"b", b"x"), (b"a", b"1"), (b"b", b"2")]


@pytest.mark.parametrize("written", ["X-User", "x_user"])
def test_set_and_remove_cover_the_spellings_that_cgi_does_not_distinguish(written: str) -> None:
    sent = [(b"x-user", b"root"), (b"x_user", b"root"), (b"x-users", b"kept")]

    assert HeaderEdit(HeaderChange(remove=(written,))).apply(sent) == [(b"x-users", b"kept")]
    set_ = HeaderEdit(HeaderChange(set=((written, "guest"),))).apply(sent)
    assert set_ == [(b"x-users", b"kept"), (written.lower().encode(), b"guest")]


@pytest.mark.parametrize("name", ["Content_Length", "CDN_Loop", "Transfer_Encoding"])
def test_other_spellings_of_fixed_headers_change_none(name: str) -> None:
    fixed = name.lower().replace("_", "-").encode()

    change = HeaderChange(set=((name, "1"),), add=((name, "2"),), remove=(name,))
    assert HeaderEdit(change).apply([(fixed, b"kept")]) == [(fixed, b"kept")]


@pytest.mark.parametrize(
    "path", ["/public/..;/admin", "/public/..%3Bx/admin", "/public/%2e%2e%3b/admin", "/a/.%3B/b", "/a%2F..%3b%2Fb"]
)
def test_dot_segments_with_parameters_are_refused_however_they_are_encoded(path: str) -> None:
    with pytest.raises(Refused, match="ambiguous path"):
        normalize_path(path)


def test_encoded_semicolons_stay_elsewhere() -> None:
    assert normalize_path("/a%3bb/..c%3B") == "/a%3Bb/..c%3B"


@pytest.mark.parametrize(
    ("path", "prefix", "value", "expected"),
    [
        ("/foo/bar", "/foo", "/xyz", "/xyz/bar"),
        ("/foo/bar", "/foo", "/xyz/", "/xyz/bar"),
        ("/foo", "/foo", "/xyz", "/xyz"),
        ("/foo/", "/foo", "/xyz", "/xyz/"),
        ("/foo/bar", "/foo", "", "/bar"),
        ("/foo/", "/foo", "", "/"),
        ("/foo", "/foo", "", "/"),
        ("/foo/", "/foo", "/", "/"),
        ("/foo", "/foo", "/", "/"),
        ("/foo", "", "/xyz", "/xyz/foo"),
        ("/foo", "/foo", "/a b\r\nc?d#e", "/a%20b%0D%0Ac%3Fd%23e"),
    ],
)
def test_prefixes_are_replaced_as_the_specification_lists(path: str, prefix: str, value: str, expected: str) -> None:
    assert PathEdit(PathChange("ReplacePrefixMatch", value)).apply(path, prefix) == expected


def test_a_full_path_replaces_everything() -> None:
    assert PathEdit(PathChange("ReplaceFullPath", "/x")).apply("/foo/bar", "/foo") == "/x"


@pytest.mark.parametrize(
    ("redirect", "listener", "expected"),
    [
        (Redirect(), ("http", 80), "http://example.com/a/b?c"),
        (Redirect(), ("http", 8080), "http://example.com:8080/a/b?c"),
        (Redirect(), ("https", 443), "https://example.com/a/b?c"),
        (Redirect(scheme="https"), ("http", 8080), "https://example.com/a/b?c"),
        (Redirect(scheme="https", port=8443), ("http", 80), "https://example.com:8443/a/b?c"),
        (Redirect(port=80), ("http", 8080), "http://example.com/a/b?c"),
        (Redirect(hostname="Other.example.com"), ("http", 80), "http://other.example.com/a/b?c"),
        (Redirect(hostname="bad\r\nhost"), ("http", 80), "http://example.com/a/b?c"),
        (Redirect(scheme="javascript"), ("http", 80), "http://example.com/a/b?c"),
        (Redirect(path=PathChange("ReplacePrefixMatch", "/x")), ("http", 80), "http://example.com/x/b?c"),
    ],
)
def test_redirects_follow_the_request_where_the_route_says_nothing(
    redirect: Redirect, listener: tuple[str, int], expected: str
) -> None:
    target = split(b"/a/b?c", [b"Example.com:81"], requires_host=True).normal()

    assert redirect_location(redirect, target, "/a", *listener) == expected


def test_statuses_that_are_no_redirects_become_302() -> None:
    assert [redirect_status(Redirect(status=each)) for each in (301, 308, 200, 304)] == [301, 308, 302, 302]


def test_a_hostname_that_is_none_rewrites_nothing() -> None:
    assert CompiledFilters(Filters(hostname="a b")).hostname == ""
    assert CompiledFilters(Filters(hostname="A.example.com")).hostname == "a.example.com"
