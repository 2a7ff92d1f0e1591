"""The rules for names of objects, each a function of (name, whether it is a generateName prefix) that returns messages.

With `prefix` a trailing dash is allowed, as the server appends random letters to it (apimachinery's pkg/api/validation
names it maskTrailingDash).
"""

from __future__ import annotations

from kube import names


def _masked(name: str, *, prefix: bool) -> str:
    return name[:-2] + "a" if prefix and len(name) > 1 and name.endswith("-") else name


def subdomain(name: str, *, prefix: bool = False) -> list[str]:
    """RFC 1123 subdomain: lower case letters, digits, dashes and dots, at most 253 characters."""
    return names.dns1123_subdomain(_masked(name, prefix=prefix))


def label(name: str, *, prefix: bool = False) -> list[str]:
    """RFC 1123 label: lower case letters, digits and dashes, at most 63 characters."""
    return names.dns1123_label(_masked(name, prefix=prefix))


def path_segment(name: str, *, prefix: bool = False) -> list[str]:
    """Any name that can stand in a URL path and in a storage key (RBAC's kinds)."""
    return names.path_segment(name) if not prefix else [p for p in names.path_segment(name) if "contain" in p]
