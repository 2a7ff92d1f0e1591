"""Image references: their grammar, the default tag and registry, and their other spellings (distribution's reference package).

A runtime lists an image under one spelling of its name. What compares names of images compares that one (`with_registry`).
"""

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


DEFAULT_REGISTRY = "docker.io"
_DEFAULT_REPOSITORY, _DEFAULT_REGISTRY_ALIAS = "library", "index.docker.io"

BUILT_IN = "wherry.local/"
"""Start of the names of images that are made on the node, as the sandbox image of all its pods. There is no such registry: a
mirror that answered for it would replace them."""


LOADED = "wherry.local/loaded/"
"""Start of labels of an image's ID in containerd. A name with which an administrator has loaded the image follows."""


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
    return "/".join(split(image))


def spellings(listed: str) -> list[str]:
    """Return the names that `with_registry` makes this one of, without those that it makes of a digest beside a tag."""
    found, rest = [listed], listed.removeprefix(f"{DEFAULT_REGISTRY}/")
    if rest != listed:
        short = rest.removeprefix(f"{_DEFAULT_REPOSITORY}/")
        parts = [rest, short] if "/" not in short else [rest]
        found += [f"{registry}{part}" for part in parts for registry in ("", "docker.io/", "index.docker.io/")]
    return found


def is_id(listed: str) -> bool:
    """Return whether a runtime may read a name as the ID of an image, or its first digits."""
    return listed.startswith(f"{DEFAULT_REGISTRY}/{_DEFAULT_REPOSITORY}/sha256:")


def split(image: str) -> tuple[str, str]:
    """Return the registry of an image's name, and the rest of the name below it.

    The first part is a registry if it has a dot, a colon or an upper-case letter, or is localhost. Docker Hub has two names,
    and its images of one part are below library/.
    """
    registry, slash, rest = image.partition("/")
    if not slash or not ("." in registry or ":" in registry or registry == "localhost" or registry != registry.lower()):
        registry, rest = DEFAULT_REGISTRY, image
    if registry == _DEFAULT_REGISTRY_ALIAS:
        registry = DEFAULT_REGISTRY
    if registry == DEFAULT_REGISTRY and "/" not in rest:
        rest = f"{_DEFAULT_REPOSITORY}/{rest}"
    return registry, rest


def without_tag(image: str) -> str:
    """Return an image's name without tag and digest."""
    name = image.partition("@")[0]
    head, colon, tag = name.rpartition(":")
    return head if colon and "/" not in tag else name
