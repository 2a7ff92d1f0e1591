"""HTML that passes in pieces, with the addresses in its tags rewritten.

A scanner that looks at each byte a fixed number of times, wherever the pieces end: an open tag is kept with the place that
was reached in it and the quote that is open there. A tag longer than LONGEST_TAG continues as it is, up to its end. Where
attributes begin and end is shown by the same quotes, so a value that looks like an attribute is none. Of several attributes of
one name in a tag only the first is rewritten: browsers ignore the others.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable

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
"""The attributes of each element that hold an address (upstream: apimachinery, util/proxy/transport.go)."""

LONGEST_TAG = 16 * 1024
"""Bytes of a tag that is rewritten, in one step when its end has come: at most 8000 attributes, which takes milliseconds."""
LONGEST_ADDRESS = 4096
"""Characters of an address that is rewritten; Python refuses to read a character reference of more than 4 300 digits."""
_NAME = re.compile(rb"[a-zA-Z][a-zA-Z0-9]*+")
_STOP = re.compile(rb"""["'>]""")
_PARTS = re.compile(
    rb"""([^\s"'>=/]++)(\s*+=\s*+)("[^"]*+"|'[^']*+'|[^\s"'>]++)|[^\s"'>=/]++|[\s=/>]++|"[^"]*+"|'[^']*+'|["']"""
)
"""An attribute with a value, or anything else that a tag consists of."""
_COMMENT = (re.compile(rb"-->"), 3)
_RAW = {
    name: (re.compile(b"</" + name, re.IGNORECASE), len(name) + 2)
    for name in (b"script", b"style", b"textarea", b"title")
}
"""Elements whose content is no markup: what ends it, and how long that is."""

_UNCHANGED = re.compile(
    rb"""(?:[^<]++
    |<(?=[^a-zA-Z!]|![^-]|!-[^-])
    |<(?!(?:%b)(?![a-zA-Z0-9]))[a-zA-Z][^"'>]*+(?:"[^"]*+"[^"'>]*+|'[^']*+'[^"'>]*+)*>
    |<(?!%b)[a-zA-Z][^"'=>]*+>
    )*"""
    % (b"|".join((*_ADDRESSES, *_RAW)), b"|".join(_RAW)),
    re.IGNORECASE | re.VERBOSE,
)
"""Text, and whole tags that continue as they are: of elements that have no addresses, and without any value.

The outer repetitions are not possessive: CPython before 3.11.5 takes a failed part of such a group for a match.
"""


class Page:
    """HTML on its way; `lead` makes of an address the one to put in its place."""

    def __init__(self, lead: Callable[[str], str]) -> None:
        self._lead = lead
        self._pending = bytearray()
        self._until: tuple[re.Pattern[bytes], int] | None = None
        """Pattern that ends the current comment or raw text, and its length."""
        self._tag = self._pass_through = False
        """In a tag, at the beginning of `_held`; in one that is too long to be held."""
        self._name = self._quote = b""
        self._reached = 0
        """Bytes of the tag in which its end was looked for."""

    def feed(self, data: bytes) -> bytes:
        """Take what came and return what can continue."""
        text, at, out = self._pending, 0, list[bytes]()
        text += data
        while at < len(text):
            before = at
            if self._tag:
                done, at = self._in_tag(text, at)
                out.append(done)
            else:
                if self._until:
                    at = self._skip(text, at, *self._until)
                elif (at := _UNCHANGED.match(text, at).end()) == before:  # type: ignore[union-attr]  # it matches nothing
                    at = self._text(text, at)
                out.append(bytes(text[before:at]))
            if at == before and not (self._tag and not self._reached):
                break
        del text[:at]
        return b"".join(out)

    def end(self) -> bytes:
        """Return what was held back, once nothing more comes."""
        pending, self._pending = bytes(self._pending), bytearray()
        return pending

    def _skip(self, text: bytearray, at: int, until: re.Pattern[bytes], length: int) -> int:
        """Return where a comment or raw text ends, or what of it can continue."""
        found = until.search(text, at)
        if found is None:
            return max(at, len(text) - length + 1)
        self._until = None
        return found.end()

    def _text(self, text: bytearray, at: int) -> int:
        """Return where something may begin that is no text, or behind it where it is text after all."""
        start = text.find(b"<", at)
        if start != at:
            return len(text) if start < 0 else start
        beginning = bytes(text[at : at + 4])
        if beginning == b"<!--":
            self._until = _COMMENT
            return at + 4
        if b"<!--".startswith(beginning):
            return at
        if not beginning[1:2].isalpha():
            return at + 1
        self._tag, self._reached, self._quote = True, 0, b""
        return at

    def _in_tag(self, text: bytearray, at: int) -> tuple[bytes, int]:
        """Return what continues of a tag, and up to where that was; nothing before the tag is whole, but for a long one."""
        end = self._end(text, at)
        if end < 0 and not self._pass_through and len(text) - at <= LONGEST_TAG:
            self._reached = len(text) - at
            return b"", at
        tag = bytes(text[at : end if end >= 0 else len(text)])
        if not self._pass_through:
            found = _NAME.match(tag, 1)
            self._name = found[0].lower() if found is not None else b""
        if end < 0:
            self._pass_through, self._reached = True, 0
            return tag, len(text)
        if not self._pass_through:
            tag = self._led(tag)
        self._tag = self._pass_through = False
        self._until = _RAW.get(self._name)
        return tag, end

    def _end(self, text: bytearray, at: int) -> int:
        """Return where a tag ends, -1 where it does not yet; looks on from where it stopped before."""
        at += self._reached
        while True:
            if self._quote:
                closing = text.find(self._quote, at)
                if closing < 0:
                    return -1
                self._quote, at = b"", closing + 1
                continue
            stop = _STOP.search(text, at)
            if stop is None:
                return -1
            at = stop.end()
            if stop[0] == b">":
                return at
            self._quote = bytes(stop[0])

    def _led(self, tag: bytes) -> bytes:
        names = _ADDRESSES.get(self._name)
        if names is None or len(tag) > LONGEST_TAG:
            return tag
        out, at, left = list[bytes](), 0, set(names)
        for part in _PARTS.finditer(tag, 1 + len(self._name)):
            if part.lastindex is None or (name := part[1].lower()) not in left:
                continue
            out += tag[at : part.start()], self._part(part)
            at = part.end()
            left.remove(name)
            if not left:
                break
        return b"".join((*out, tag[at:]))

    def _part(self, part: re.Match[bytes]) -> bytes:
        name, equals, value = part.groups()
        if len(value) > LONGEST_ADDRESS:
            return part[0]
        quoted = value[:1] in (b'"', b"'")
        plain = html.unescape((value[1:-1] if quoted else value).decode("latin-1"))
        led = self._lead(plain)
        if led == plain:
            return part[0]
        return name + equals + b'"' + html.escape(led).encode("latin-1", "xmlcharrefreplace") + b'"'
