"""Subject of a certificate or a signing request: the common name is the user, the organizations are the groups.

The API server and the agents read subjects here, as Go's crypto/x509 and upstream's authenticator do: of several common names
the last one counts. Signers refuse requests that have several (`ambiguous`), since other programs take the first.
"""

from __future__ import annotations

import msgspec
from cryptography import x509
from cryptography.x509.oid import NameOID

UID = x509.ObjectIdentifier("1.3.6.1.4.1.57683.2")
"""Upstream's OID of a user's uid in the subject (KEP-4650)."""


class SubjectError(ValueError):
    """A subject has an invalid value: not text, an empty uid, or several."""


class Subject(msgspec.Struct, frozen=True):
    """A user's name ("" where there is none), groups and uid."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""


def read(subject: x509.Name) -> Subject:
    """Return whom a subject names; raise SubjectError."""
    names, groups, uids = (_values(subject, oid) for oid in (NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME, UID))
    if len(uids) > 1:
        raise SubjectError(f"expected 1 UID, but found multiple: {uids}")
    if uids == ("",):
        raise SubjectError("UID cannot be an empty string")
    return Subject(names[-1] if names else "", groups, uids[0] if uids else "")


def ambiguous(subject: x509.Name) -> bool:
    """Return whether a subject has several common names, of which programs read different ones."""
    return len(subject.get_attributes_for_oid(NameOID.COMMON_NAME)) > 1


def _values(subject: x509.Name, oid: x509.ObjectIdentifier) -> tuple[str, ...]:
    found = []
    for attribute in subject.get_attributes_for_oid(oid):
        if not isinstance(attribute.value, str):
            raise SubjectError(f"the subject's {oid.dotted_string} is not text")
        found.append(attribute.value)
    return tuple(found)
