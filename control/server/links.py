"""Links in what comes through a proxy: an address that begins at the server's root is made to lead through the proxy again.

A page of a pod that says href="/page" means the pod's own root, while a browser behind `.../pods/web/proxy/` would ask the API
server for /page. So the path of the proxy is put before such addresses, in Location headers and in the attributes of HTML
that hold addresses. Relative ones and those of other hosts stay. The page passes in pieces: what may be the beginning of a tag
is held back until the rest of it is there. Upstream: apimachinery, util/proxy/transport.go.
"""

from __future__ import annotations

import html
import posixpath
import re
import zlib
from collections.abc import AsyncIterator
from urllib.parse import urlsplit, urlunsplit

from control.server import relay
from control.server.exchange import Request, Response, Stream

_ADDRESSES: dict[bytes, tuple[bytes, ...]] = {
    b"a": (b"href",),
    b"applet": (b"codebase",),
    b"area": (b"href",),
    b"audio": (b"src",),
    b"base": (b"href",),
    b"blockquote": (b"cite",),
    b"body": (b"background",),
    b"button": (b"formaction",),
    b"command": (b"icon",),
    b"del": (b"cite",),
    b"embed": (b"src",),
    b"form": (b"action",),
    b"frame": (b"longdesc", b"src"),
    b"head": (b"profile",),
    b"html": (b"manifest",),
    b"iframe": (b"longdesc", b"src"),
    b"img": (b"longdesc", b"src", b"usemap"),
    b"input": (b"src", b"usemap", b"formaction"),
    b"ins": (b"cite",),
    b"link": (b"href",),
    b"object": (b"classid", b"codebase", b"data", b"usemap"),
    b"q": (b"cite",),
    b"script": (b"src",),
    b"source": (b"src",),
    b"video": (b"poster", b"src"),
}
"""The attributes of each element that hold an address."""

_TAG = re.compile(rb"""<([a-zA-Z][a-zA-Z0-9]*)((?:[^"'>]|"[^"]*"|'[^']*')*)>""")
_ATTRIBUTE = re.compile(rb"""(\s)([a-zA-Z-]+)(\s*=\s*)("[^"]*"|'[^']*'|[^\s"'>]+)""")
_RAW = frozenset({b"script", b"style", b"textarea", b"title"})
"""Elements whose content is no markup."""
_HELD = 64 * 1024


def prefix_of(request: Request) -> str:
    """Return the path of the proxy subresource that a request goes through, without what follows it."""
    return "/".join(request.path.split("/")[: 8 if request.info.namespace else 6])


def to_the_root(request: Request) -> Response | None:
    """Send whoever asks for the proxy itself without its last slash there: relative links would lead beside it otherwise."""
    if request.method not in ("GET", "HEAD") or request.info.rest or request.path.endswith("/"):
        return None
    query = f"?{request.query_string.decode('latin-1')}" if request.query_string else ""
    return Response(
        301, b"", b"text/plain; charset=utf-8", [(b"location", f"{request.path}/{query}".encode("latin-1"))]
    )


def lead_through(url: str, prefix: str, backend: str, asked: str) -> str:
    """Return an address as it is reached through the proxy at `prefix`; `backend` and `asked` are the hosts of either side."""
    try:
        scheme, host, path, query, fragment = urlsplit(url)
    except ValueError:
        return url
    if (host and host != backend) or not path.startswith("/"):
        return url
    if not (host and host == asked):
        scheme = host = ""
    if not path.startswith(prefix):
        path = posixpath.normpath(prefix + path) + ("/" if path.endswith("/") else "")
    return urlunsplit((scheme, host, path, query, fragment))


def relink(request: Request, head: relay.Head, chunks: AsyncIterator[bytes], backend: str) -> Stream:
    """Make the answer of the server behind a proxy, whose body comes in `chunks`, with links that lead through the proxy."""
    answer = relay.as_response(head, b"")
    prefix, asked = prefix_of(request), request.headers.get(b"host", b"").decode("latin-1")
    headers = [
        (name, lead_through(value.decode("latin-1"), prefix, backend, asked).encode("latin-1"))
        if name == b"location"
        else (name, value)
        for name, value in answer.headers
    ]
    if answer.content_type.split(b";")[0].strip().lower() != b"text/html" or request.method == "HEAD":
        return Stream(chunks, answer.content_type, head.status, headers)
    coding = dict(headers).get(b"content-encoding", b"").lower()
    if coding not in (b"", b"gzip", b"deflate"):
        return Stream(chunks, answer.content_type, head.status, headers)
    if coding:
        chunks = _unpacked(chunks)
        headers = [header for header in headers if header[0] != b"content-encoding"]
    return Stream(_pages(chunks, prefix, backend, asked), answer.content_type, head.status, headers)


async def _unpacked(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    unpack = zlib.decompressobj(wbits=47)  # gzip or zlib, as its head says
    async for chunk in chunks:
        yield unpack.decompress(chunk)
    yield unpack.flush()


async def _pages(chunks: AsyncIterator[bytes], prefix: str, backend: str, asked: str) -> AsyncIterator[bytes]:
    page = Page(prefix, backend, asked)
    async for chunk in chunks:
        if done := page.feed(chunk):
            yield done
    if rest := page.end():
        yield rest


class Page:
    """HTML on its way, whose links are rewritten."""

    def __init__(self, prefix: str, backend: str, asked: str) -> None:
        self._where = (prefix, backend, asked)
        self._held = b""
        self._until = b""
        """What ends the comment or the raw text that we are in."""

    def feed(self, data: bytes) -> bytes:
        """Take what came and return what can go on."""
        text, self._held, at = self._held + data, b"", 0
        out: list[bytes] = []
        while at < len(text):
            if self._until:
                end = text.lower().find(self._until, at)
                stop = end if end >= 0 else max(at, len(text) - len(self._until) + 1)
                out.append(text[at:stop])
                at = stop
                if end < 0:
                    break
                self._until = b""
                continue
            start = text.find(b"<", at)
            if start < 0:
                out.append(text[at:])
                return b"".join(out)
            out.append(text[at:start])
            at = start
            if text.startswith(b"<!--", at):
                self._until = b"-->"
                continue
            tag = _TAG.match(text, at)
            if tag is not None:
                out.append(self._tag(tag))
                at = tag.end()
                if tag[1].lower() in _RAW:
                    self._until = b"</" + tag[1].lower()
            elif self._whole(text, at):
                out.append(b"<")
                at += 1
            else:
                break
        self._held = text[at:]
        return b"".join(out)

    def end(self) -> bytes:
        """Return what was held back, once nothing more comes."""
        held, self._held = self._held, b""
        return held

    @staticmethod
    def _whole(text: bytes, at: int) -> bool:
        """Say whether enough of the text is there to know that no tag begins at a bracket."""
        beginning = text[at : at + 4]
        if b"<!--".startswith(beginning):
            return False
        return not beginning[1:2].isalpha() or len(text) - at > _HELD

    def _tag(self, tag: re.Match[bytes]) -> bytes:
        names = _ADDRESSES.get(tag[1].lower())
        if names is None:
            return tag[0]

        def attribute(found: re.Match[bytes]) -> bytes:
            space, name, equals, value = found.groups()
            if name.lower() not in names:
                return found[0]
            quote = value[:1] if value[:1] in (b'"', b"'") else b""
            plain = html.unescape(value[len(quote) : len(value) - len(quote)].decode("latin-1"))
            led = lead_through(plain, *self._where)
            if led == plain:
                return found[0]
            return space + name + equals + b'"' + html.escape(led).encode("latin-1", "xmlcharrefreplace") + b'"'

        return b"<" + tag[1] + _ATTRIBUTE.sub(attribute, tag[2]) + b">"
