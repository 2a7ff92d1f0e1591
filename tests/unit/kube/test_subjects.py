from __future__ import annotations

import pytest
from cryptography import x509
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID

from kube import subjects
from kube.subjects import Subject, SubjectError

CN, O = NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME  # noqa: E741


def name(*attributes: tuple[x509.ObjectIdentifier, str]) -> x509.Name:
    return x509.Name([x509.NameAttribute(oid, value, _validate=False) for oid, value in attributes])


@pytest.mark.parametrize(
    "attributes, subject",
    [
        ([], Subject("")),
        ([(CN, "jane")], Subject("jane")),
        ([(O, "a"), (CN, "jane"), (O, "b"), (subjects.UID, "7")], Subject("jane", ("a", "b"), "7")),
        ([(CN, "first"), (O, "a"), (CN, "last")], Subject("last", ("a",))),
        ([(CN, "first"), (CN, "")], Subject("")),
    ],
)
def test_a_subject_names_a_user_as_go_reads_it(
    attributes: list[tuple[x509.ObjectIdentifier, str]], subject: Subject
) -> None:
    assert subjects.read(name(*attributes)) == subject
    assert subjects.ambiguous(name(*attributes)) is (len([oid for oid, _ in attributes if oid == CN]) > 1)


def test_of_several_names_at_one_place_the_last_counts_too() -> None:
    together = [x509.NameAttribute(CN, "a"), x509.NameAttribute(CN, "b")]
    found = x509.Name([x509.RelativeDistinguishedName(together)])
    assert subjects.read(found).name == "b" and subjects.ambiguous(found)


@pytest.mark.parametrize("uids", [("",), ("1", "2")])
def test_a_uid_is_one_and_not_empty(uids: tuple[str, ...]) -> None:
    with pytest.raises(SubjectError, match="UID"):
        subjects.read(name((CN, "jane"), *((subjects.UID, uid) for uid in uids)))


def test_what_is_not_text_names_nobody() -> None:
    bits = x509.NameAttribute(NameOID.X500_UNIQUE_IDENTIFIER, b"\0jane", _type=_ASN1Type.BitString)
    assert subjects.read(x509.Name([bits, x509.NameAttribute(CN, "jane")])) == Subject("jane")
