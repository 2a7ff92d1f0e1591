"""Links behind a proxy, whole and in pieces."""

import pytest

from control.server.links import Page, lead_through

PREFIX = "/api/v1/namespaces/n/pods/p/proxy"
WHERE = (PREFIX, "10.244.0.5:80", "api:6443")


@pytest.mark.parametrize(
    ("url", "led"),
    [
        ("/a/b?x=y#z", f"{PREFIX}/a/b?x=y#z"),
        ("/", f"{PREFIX}/"),
        ("/a/../c/", f"{PREFIX}/c/"),
        ("http://10.244.0.5:80/a", f"{PREFIX}/a"),
        ("https://api:6443/a", "https://api:6443/a"),
        ("https://elsewhere/a", "https://elsewhere/a"),
        ("//elsewhere/a", "//elsewhere/a"),
        ("a/b", "a/b"),
        ("#top", "#top"),
        ("mailto:me@example.com", "mailto:me@example.com"),
        (f"{PREFIX}/a", f"{PREFIX}/a"),
        ("http://[broken/a", "http://[broken/a"),
    ],
)
def test_addresses_from_the_root_lead_through_the_proxy_and_others_stay(url: str, led: str) -> None:
    assert lead_through(url, *WHERE) == led


MARKUP = b"""<!DOCTYPE html><HTML manifest=/m><a class=x href='/next?a=1&amp;b=2'>1 < 2 <3</a><img src="/i.png" alt='>'>
<!-- <a href="/commented"> --><script src="/s.js">if (a < b) { x = '<a href="/in-script">' }</SCRIPT>
<p title="/not-an-address"><form action=/go method=post><input src=rel></form><a href="/ends"""
LED = (
    MARKUP.replace(b"manifest=/m", b'manifest="%b/m"' % PREFIX.encode())
    .replace(b"'/next?a=1&amp;b=2'", b'"%b/next?a=1&amp;b=2"' % PREFIX.encode())
    .replace(b"/i.png", PREFIX.encode() + b"/i.png")
    .replace(b"/s.js", PREFIX.encode() + b"/s.js")
    .replace(b"action=/go", b'action="%b/go"' % PREFIX.encode())
)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 10_000])
def test_a_page_is_the_same_in_whatever_pieces_it_comes(size: int) -> None:
    page = Page(*WHERE)
    done = b"".join(page.feed(MARKUP[at : at + size]) for at in range(0, len(MARKUP), size)) + page.end()
    assert done == LED


def test_a_bracket_that_no_tag_follows_is_not_held_back_for_ever() -> None:
    page = Page(*WHERE)
    assert page.feed(b"a < b") == b"a < b"
    assert page.feed(b"<a " + b"x" * 100_000).startswith(b"<a xxx") and page.end() == b""
