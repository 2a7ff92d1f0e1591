"""Links behind a proxy, whole and in pieces."""

import random
import zlib
from collections.abc import AsyncIterator

import pytest

from control.http import rewrite_links
from control.http.exchange import Request
from control.http.html_page import LONGEST_TAG, Page
from control.http.rewrite_links import PIECE, prefix_of, rewrite_link, to_the_root, unpacked
from kube.errors import StatusError
from tests.support.cost import Case, Lines, steps

RANDOM_PARTS = (
    *(
        b"<",
        b">",
        b"<a ",
        b"<A",
        b"href=",
        b"href='/x'",
        b'href="/y',
        b"'",
        b'"',
        b"<!",
        b"-",
        b"<!--",
        b"-->",
        b"=",
        b" ",
    ),
    *(
        b"<script",
        b"</script",
        b"<title>",
        b"<p ",
        b"<pre>",
        b"<abbr x=",
        b"x",
        b"/",
        b"<q cite=/a>",
        b"<base",
        b"<b ",
        b"\n",
    ),
)
PREFIX = "/api/v1/namespaces/n/pods/p/proxy"
WHERE = (PREFIX, "10.244.0.5:80", "api:6443")


async def nothing(limit: int) -> bytes:
    return b""


@pytest.mark.parametrize(
    ("path", "prefix"),
    [
        ("/api/v1/nodes/n/proxy", "/api/v1/nodes/n/proxy"),
        ("//api/v1/nodes/n/proxy", "/api/v1/nodes/n/proxy"),
        ("///api//v1/nodes///n/proxy", "/api/v1/nodes/n/proxy"),
        ("//api/v1/namespaces/n/pods/p/proxy", PREFIX),
        ("/api/v1/namespaces/n/services/https:web:443/proxy", "/api/v1/namespaces/n/services/https:web:443/proxy"),
        ("/api/v1/nodes/n\r\nX: \u20ac?/proxy", "/api/v1/nodes/n%0D%0AX:%20%E2%82%AC%3F/proxy"),
    ],
)
def test_the_last_slash_is_added_on_this_server(path: str, prefix: str) -> None:
    answer = to_the_root(Request("GET", path, b"a=b", {}, nothing))
    assert answer is not None and answer.status == 301
    assert dict(answer.headers)[b"location"] == f"{prefix}/?a=b".encode()


def test_links_lead_through_the_proxy_however_its_path_was_written() -> None:
    assert prefix_of(Request("GET", "//api//v1/namespaces/n/pods/p/proxy/a/b", b"", {}, nothing)) == PREFIX


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
    assert rewrite_link(url, *WHERE) == led


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
    page = Page(lambda url: rewrite_link(url, *WHERE))
    done = b"".join(page.feed(MARKUP[at : at + size]) for at in range(0, len(MARKUP), size)) + page.end()
    assert done == LED


def test_a_bracket_that_no_tag_follows_is_not_held_back_for_ever() -> None:
    page = Page(lambda url: rewrite_link(url, *WHERE))
    assert page.feed(b"a < b") == b"a < b"
    assert page.feed(b"<a " + b"x" * 100_000).startswith(b"<a xxx") and page.end() == b""


def test_what_looks_like_an_attribute_within_a_value_is_none() -> None:
    page = Page(lambda url: rewrite_link(url, *WHERE))
    text = b"""<a title=" href=/x " data-href=/y href = '/z'>"""
    assert page.feed(text) == text.replace(b"'/z'", b'"%b/z"' % PREFIX.encode())


@pytest.mark.parametrize("size", [1000, 10_000_000])
def test_a_tag_that_is_too_long_goes_on_as_it_is_and_the_next_is_led(size: int) -> None:
    page = Page(lambda url: rewrite_link(url, *WHERE))
    long = b'<a href=/x title="' + b">" * LONGEST_TAG + b'">'
    after = b"<a href=/y>"
    text = long + after
    done = b"".join(page.feed(text[at : at + size]) for at in range(0, len(text), size)) + page.end()
    assert done == long + b'<a href="%b/y">' % PREFIX.encode()


def test_an_address_that_is_too_long_stays() -> None:
    page = Page(lambda url: rewrite_link(url, *WHERE))
    text = b"<a href='/&#" + b"1" * 5000 + b";'>"
    assert page.feed(text) == text


async def _chunks(data: bytes, size: int) -> AsyncIterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]


@pytest.mark.parametrize("size", [1, 7, 1000, 1_000_000])
@pytest.mark.parametrize("wbits", [15, 31], ids=["deflate", "gzip"])
async def test_a_compressed_page_is_unpacked_in_pieces(size: int, wbits: int) -> None:
    plain = bytes(range(256)) * 2000
    packer = zlib.compressobj(wbits=wbits)
    packed = packer.compress(plain) + packer.flush()
    pieces = [piece async for piece in unpacked(_chunks(packed + b"trailer", size))]
    assert b"".join(pieces) == plain
    assert max(map(len, pieces)) <= PIECE


async def test_a_page_that_unpacks_to_too_much_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewrite_links, "MOST_UNPACKED", 1_000_000)
    seen = 0
    with pytest.raises(StatusError) as refused:
        async for piece in unpacked(_chunks(zlib.compress(bytes(50_000_000)), 4096)):
            seen += len(piece)
    assert refused.value.code == 502 and seen <= 1_000_000
    with pytest.raises(StatusError) as refused:
        async for _ in unpacked(_chunks(b"no gzip at all", 4)):
            pass
    assert refused.value.code == 502


@pytest.mark.parametrize("packed", [False, True])
async def test_a_page_is_rewritten_in_small_pieces_each_at_a_turn(
    monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    began, feed, fed = 0, Page.feed, list[int]()

    async def turn() -> None:
        nonlocal began
        began += 1

    def counted(page: Page, data: bytes) -> bytes:
        fed.append(len(data))
        assert len(fed) == began
        return feed(page, data)

    monkeypatch.setattr(rewrite_links, "yield_to_loop", turn)
    monkeypatch.setattr(Page, "feed", counted)
    text = b"<a href=/x>" * 20_000
    headers = [(b"content-type", b"text/html"), *([(b"content-encoding", b"deflate")] if packed else [])]
    head = rewrite_links.http1.Head(200, headers, b"")
    request = Request("GET", f"{PREFIX}/", b"", {b"host": b"api"}, nothing)
    chunks = _chunks(zlib.compress(text) if packed else text, 65536)
    found = b"".join(
        [chunk async for chunk in rewrite_links.rewrite_response(request, head, chunks, "1.1.1.1:80").chunks]
    )
    assert found.count(f'href="{PREFIX}/x"'.encode()) == 20_000
    assert max(fed) <= PIECE and sum(fed) == len(text)


@pytest.mark.parametrize(
    "text", [b"<p>", b"<a>", b"<p class='x' id=y>", b"</a>", b"<!doctype>", b"<<", b"<p '<a href=/x>'>", b"a < b"]
)
def test_tags_without_addresses_pass_together(text: bytes) -> None:
    case = Case("tags", lambda size: text * size, Page(str.upper).feed)
    assert steps(case, case.build(1000)) < 30


@pytest.mark.parametrize("element", [b"a", b"iframe"])
@pytest.mark.parametrize("attribute", [b"href=/ ", b"src='/a/a' ", b"a=b ", b"a ", b"= ", b"''", b"/"])
def test_a_tag_of_many_attributes_takes_bounded_work_in_each_step(element: bytes, attribute: bytes) -> None:
    led: list[str] = []

    def lead(url: str) -> str:
        led.append(url)
        return url

    for size in (LONGEST_TAG // 2, LONGEST_TAG - 32, LONGEST_TAG + 32, 4 * LONGEST_TAG):
        page, text = Page(lead), b"<" + element + b" " + attribute * (size // len(attribute)) + b"><a href=/x>"
        for at in range(0, len(text), PIECE):
            del led[:]
            with Lines() as lines:
                page.feed(text[at : at + PIECE])
            assert lines.count < 60_000 and len(led) <= 3
        assert page.end() == b""


def test_only_the_first_attribute_of_a_name_is_an_address() -> None:
    page = Page(lambda url: "/led" + url)
    text = b"<iframe src=/a SRC=/b longdesc='/c' src longdesc=/d><a href=/e><a x=y href=/f HREF=/g>"
    assert page.feed(text) == (
        b'<iframe src="/led/a" SRC=/b longdesc="/led/c" src longdesc=/d><a href="/led/e"><a x=y href="/led/f" HREF=/g>'
    )


@pytest.mark.parametrize("seed", range(20))
def test_a_page_of_random_parts_is_the_same_in_whatever_pieces_it_comes(seed: int) -> None:
    chosen, whole = random.Random(seed), list[bytes]()
    for _ in range(100):
        text = b"".join(chosen.choices(RANDOM_PARTS, k=chosen.randrange(1, 25)))
        for step in (1, 3, len(text)):
            page = Page(lambda url: "/led" + url)
            pieces = [page.feed(text[at : at + step]) for at in range(0, len(text), step)]
            whole.append(b"".join(pieces) + page.end())
        assert whole[-1] == whole[-2] == whole[-3], text
