from __future__ import annotations

import base64
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from control.registry.certificates.issued import certificate_problem
from kube.json_object import Object
from tests.unit.control.registry.strategies import created, problems, update_problems


def _request(*users: str) -> str:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, user) for user in users or ("jo",)])
    key = ec.generate_private_key(ec.SECP256R1())
    pem = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    return base64.b64encode(pem.public_bytes(serialization.Encoding.PEM)).decode()


PEM = _request()
LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an "
    "alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)


TWO = _request("jo", "admin")


def requested(**spec: Any) -> Object:
    base = {"request": PEM, "signerName": "example.com/signer", "usages": ["client auth"]}
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": "x"},
        "spec": {**base, **spec},
    }


REFUSED = [
    (requested(signerName=""), "spec.signerName: Required value"),
    (
        requested(signerName="example.com"),
        'spec.signerName: Invalid value: "example.com": must be a fully qualified domain and path of the form '
        "'example.com/signer-name'",
    ),
    (
        requested(signerName="example/signer"),
        'spec.signerName: Invalid value: "example": should be a domain with at least two segments separated by dots',
    ),
    (
        requested(signerName="Example.com/signer"),
        f'spec.signerName: Invalid value: "Example.com": validating label "Example": {LABEL}',
    ),
    (
        requested(signerName="kubernetes.io/legacy-unknown"),
        'spec.signerName: Invalid value: "kubernetes.io/legacy-unknown": the legacy signerName is not allowed via this API '
        "version",
    ),
    (
        requested(request=TWO, signerName="kubernetes.io/kube-apiserver-client"),
        f'spec.request: Invalid value: "{TWO}": the subject has more than one common name',
    ),
    (requested(usages=[]), "spec.usages: Required value"),
    (requested(usages=["client auth", "client auth"]), 'spec.usages[1]: Duplicate value: "client auth"'),
    (
        requested(expirationSeconds=60),
        "spec.expirationSeconds: Invalid value: 60: may not specify a duration less than 600 seconds (10 minutes)",
    ),
]


@pytest.mark.parametrize(("obj", "message"), REFUSED, ids=[m[:80] for _, m in REFUSED])
def test_a_bad_request_is_refused_in_upstreams_words(obj: Object, message: str) -> None:
    assert problems(obj) == [message]


def test_an_unknown_usage_is_an_error_that_lists_the_known_ones() -> None:
    (found,) = problems(requested(usages=["everything"]))
    assert found.startswith('spec.usages[0]: Unsupported value: "everything": supported values: "any", "cert sign", ')


CONDITIONS = [
    ([{"type": "Approved", "status": "True"}], []),
    (
        [{"type": "Approved", "status": "False"}],
        ['status.conditions[0].status: Unsupported value: "False": supported values: "True"'],
    ),
    (
        [{"type": "Approved", "status": "True"}] * 2,
        ['status.conditions[1].type: Duplicate value: "Approved"'],
    ),
    (
        [{"type": "Denied", "status": "True"}, {"type": "Approved"}],
        [
            "status.conditions[1].status: Required value",
            'status.conditions[1].type: Invalid value: "Approved": Approved and Denied conditions are mutually exclusive',
        ],
    ),
]


@pytest.mark.parametrize(("conditions", "output"), CONDITIONS, ids=[str(s)[:60] for _, s in CONDITIONS])
def test_verdicts_are_one_and_true(conditions: list[Object], output: list[str]) -> None:
    old, new = created(requested()), created(requested())
    new["status"] = {"conditions": conditions}
    assert update_problems(old, new, "approval") == output


def test_signers_of_others_may_take_several_common_names() -> None:
    assert problems(requested(request=TWO)) == []


BLOCK = "-----BEGIN {0}-----\nAA==\n-----END {0}-----\n"
ISSUED = [
    (BLOCK.format("CERTIFICATE"), ""),
    (2 * BLOCK.format("CERTIFICATE"), ""),
    ("text\n" + BLOCK.format("CERTIFICATE") + "more", ""),
    (BLOCK.format("CERTIFICATE").replace("\n", " \r\n"), ""),
    ("-----BEGIN A-----\n" + BLOCK.format("CERTIFICATE"), ""),
    ("-----BEGIN A-----\n-----END B-----\n" + BLOCK.format("CERTIFICATE"), ""),
    (BLOCK.format("CERTIFICATE") + BLOCK.format("A KEY"), 'only CERTIFICATE PEM blocks are allowed, found "A KEY"'),
    (BLOCK.format("CERTIFICATE").replace("AA", "A: b\n\nAA"), "no PEM block headers are permitted"),
    ("text" + BLOCK.format("CERTIFICATE"), "must contain at least one CERTIFICATE PEM block"),
    ("-----BEGIN CERTIFICATE-----\nAA==\n", "must contain at least one CERTIFICATE PEM block"),
    ("text", "must contain at least one CERTIFICATE PEM block"),
    ("", ""),
]


@pytest.mark.parametrize(("text", "problem"), ISSUED)
def test_blocks_of_an_issued_certificate_are_found_as_by_go(text: str, problem: str) -> None:
    assert certificate_problem(base64.b64encode(text.encode()).decode()) == problem
