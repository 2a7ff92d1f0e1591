"""Image references: their grammar, and the default tag (distribution's reference grammar)."""

from __future__ import annotations

import re

_DOMAIN_PART = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_DOMAIN = rf"(?:{_DOMAIN_PART}(?:\.{_DOMAIN_PART})*|\[(?:[a-fA-F0-9:]+)\])(?::[0-9]+)?"
_PATH_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_NAME = rf"(?:{_DOMAIN}/)?{_PATH_PART}(?:/{_PATH_PART})*"
_TAG = r"[\w][\w.-]{0,127}"
_DIGEST = r"[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}"
_REFERENCE = re.compile(rf"({_NAME})(?::({_TAG}))?(?:@({_DIGEST}))?", re.ASCII)
_ID = re.compile(r"[a-f0-9]{64}")
LONGEST = 1024
"""Characters of a reference: a registry has 260 at most, a repository 255, a tag 128, and the longest digest 135."""


BUILT_IN = "wherry.local/"
"""Start of the names of images that are made on the node, as the sandbox image of all its pods. There is no such registry: a
mirror that answered for it would replace them."""


class InvalidImageName(ValueError):
    """Not an image reference; the message is the grammar's complaint."""


def with_default_tag(image: str) -> str:
    """Return the reference with `:latest` where it has neither tag nor digest. Raise InvalidImageName."""
    if len(image) > LONGEST:
        raise InvalidImageName("repository name must not be more than 255 characters")
    match = _REFERENCE.fullmatch(image)
    if match is None:
        lower = _REFERENCE.fullmatch(image.lower())
        if lower is not None:
            name = image.partition("@")[0]
            repository = name if "/" in name else f"library/{name}"
            raise InvalidImageName(f"invalid reference format: repository name ({repository}) must be lowercase")
        raise InvalidImageName("invalid reference format")
    if _ID.fullmatch(image):
        raise InvalidImageName(f"invalid repository name ({image}), cannot specify 64-byte hexadecimal strings")
    _, tag, digest = match.groups()
    return image if tag or digest else f"{image}:latest"


def with_registry(image: str) -> str:
    """Return a reference as a runtime lists it: `app:1` is `docker.io/library/app:1` there, and a digest replaces a tag."""
    name, at, digest = image.partition("@")
    if at:
        image = f"{without_tag(name)}@{digest}"
    first, slash, _ = image.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return image
    return f"docker.io/{image}" if slash else f"docker.io/library/{image}"


def without_tag(image: str) -> str:
    """Return an image's name without tag and digest."""
    name = image.partition("@")[0]
    head, colon, tag = name.rpartition(":")
    return head if colon and "/" not in tag else name
