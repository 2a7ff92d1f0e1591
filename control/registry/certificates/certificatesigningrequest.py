"""CertificateSigningRequests: the server records the requesting user, never the client."""

from __future__ import annotations

import base64
from collections.abc import Callable

from cryptography import x509

from control.auth.certificates import AMBIGUOUS, LEGACY_UNKNOWN, SIGNERS, parse_request
from control.registry.certificates.issued import certificate_problem
from control.registry.checks import FieldErrors, each, repeated
from control.registry.naming import path_segment
from control.registry.strategy import Strategy, keep
from control.registry.strategy_context import Context, Finish
from control.registry.table_cells import AGE, NAME, NONE, Column, Field
from control.registry.tables import human_duration
from kube import names, subjects
from kube.errors import FieldError, duplicate, forbidden_field, invalid_value, not_supported, required, too_long
from kube.json_object import Object

USAGES = (
    "signing",
    "digital signature",
    "content commitment",
    "key encipherment",
    "key agreement",
    "data encipherment",
    "cert sign",
    "crl sign",
    "encipher only",
    "decipher only",
    "any",
    "server auth",
    "client auth",
    "code signing",
    "email protection",
    "s/mime",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "timestamping",
    "ocsp signing",
    "microsoft sgc",
    "netscape sgc",
)
_VERDICTS = ("Approved", "Denied")
_REQUESTER = ("username", "uid", "groups", "extra")


def _condition(status: Object | None) -> str:
    status = status or {}
    found = {c.get("type") for c in status.get("conditions") or ()}
    shown = "Denied" if "Denied" in found else "Approved" if "Approved" in found else "Pending"
    if "Failed" in found:
        shown += ",Failed"
    return shown + (",Issued" if status.get("certificate") else "")


_DURATION = Field("spec.expirationSeconds", show=lambda found: NONE if found is None else human_duration(found))


class CertificateSigningRequestStrategy(Strategy):
    columns = (
        NAME,
        AGE,
        Column("SignerName", Field("spec.signerName", NONE), "Who shall sign."),
        Column("Requestor", Field("spec.username"), "Who asks."),
        Column("RequestedDuration", _DURATION, "How long it shall be valid."),
        Column("Condition", Field("status", show=_condition), "How the request stands."),
    )
    has_generation = False
    name_rule = staticmethod(path_segment)
    """Any name: kubelets name their requests after a hash of what they request, in base64."""

    def prepare_create(self, obj: Object) -> None:
        obj["status"] = {}
        for key in _REQUESTER:
            obj.setdefault("spec", {}).pop(key, None)

    async def allocate(self, obj: Object, old: Object | None, context: Context) -> Finish | None:
        if old is None:
            user, spec = context.user, obj.setdefault("spec", {})
            spec["username"] = user.name
            if user.uid:
                spec["uid"] = user.uid
            if user.groups:
                spec["groups"] = list(user.groups)
            if user.extra:
                spec["extra"] = {key: list(values) for key, values in user.extra.items()}
        return None

    def prepare_update(self, obj: Object, old: Object) -> None:
        keep(obj, old, "spec")
        keep(obj, old, "status")

    def prepare_subresource(self, subresource: str, obj: Object, old: Object) -> None:
        """Approval changes the Approved and Denied conditions alone; status changes all but these."""
        keep(obj, old, "spec")
        conditions = (obj.get("status") or {}).get("conditions") or []
        before = (old.get("status") or {}).get("conditions") or []
        if subresource == "approval":
            keep(obj, old, "status")
            status = dict(obj.get("status") or {})
            status["conditions"] = conditions  # of any type; what may not be taken off is validation's matter
        else:
            status = dict(obj.get("status") or {})
            verdicts = [c for c in before if c.get("type") in _VERDICTS]
            status["conditions"] = verdicts + [c for c in conditions if c.get("type") not in _VERDICTS]
        obj["status"] = status

    def validate_subresource(self, subresource: str, obj: Object, old: Object) -> list[FieldError]:
        """A verdict stands: conditions of Approved, Denied and Failed are never taken off, and only one of two is given."""
        errors = []
        found = {c.get("type") for c in (obj.get("status") or {}).get("conditions") or ()}
        for kind in ("Approved", "Denied", "Failed"):
            if kind not in found and kind in {c.get("type") for c in (old.get("status") or {}).get("conditions") or ()}:
                detail = f"updates may not remove a condition of type {_quoted(kind)}"
                errors.append(forbidden_field("status.conditions", detail))
        errors += _conditions((obj.get("status") or {}).get("conditions") or [], "status.conditions")
        issued, before = ((o.get("status") or {}).get("certificate") for o in (obj, old))
        problem = certificate_problem(issued or "") if issued != before else ""
        if problem and not certificate_problem(before or ""):
            errors.append(invalid_value("status.certificate", "<certificate data>", problem))
        if before and issued != before:
            errors.append(forbidden_field("status.certificate", "updates may not modify existing certificate content"))
        return errors

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj.get("spec") or {}
        errors = []
        errors += _request(spec.get("request") or "", spec.get("signerName") or "")
        if not spec.get("usages"):
            errors.append(required("spec.usages"))
        usages = spec.get("usages") or []
        again = repeated(usages)
        for index, usage in enumerate(usages):
            if usage not in USAGES:
                errors.append(not_supported(f"spec.usages[{index}]", usage, sorted(USAGES)))
            if index in again:
                errors.append(duplicate(f"spec.usages[{index}]", usage))
        signer = spec.get("signerName") or ""
        if signer == LEGACY_UNKNOWN:
            detail = "the legacy signerName is not allowed via this API version"
            errors.append(invalid_value("spec.signerName", signer, detail))
        else:
            errors += signer_name(signer, "spec.signerName")
        if spec.get("expirationSeconds") is not None and spec["expirationSeconds"] < 600:
            detail = "may not specify a duration less than 600 seconds (10 minutes)"
            errors.append(invalid_value("spec.expirationSeconds", spec["expirationSeconds"], detail))
        return errors

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        return []

    def fields(self, obj: Object) -> dict[str, str]:
        return {"spec.signerName": (obj.get("spec") or {}).get("signerName") or ""}


def signer_name(name: str, path: str) -> list[FieldError]:
    """Check a signer's name: a domain of at least two labels, a slash, and what the domain calls the signer."""
    if not name:
        return [required(path)]
    domain, slash, rest = name.partition("/")
    if not slash or "/" in rest:
        detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        return [invalid_value(path, name, detail)]
    errors = [too_long(path, 253)] if len(domain) > 253 else []
    labels = domain.split(".")
    errors += _first_problem(path, domain, labels, names.dns1123_label)
    if len(labels) < 2:
        errors.append(invalid_value(path, domain, "should be a domain with at least two segments separated by dots"))
    errors += _first_problem(path, rest, rest.split("."), names.dns1123_subdomain)
    if len(name) > _LONGEST_SIGNER:
        errors.append(too_long(path, _LONGEST_SIGNER))
    return errors


_LONGEST_SIGNER = 253 + 1 + 253 + 1 + 63


def _first_problem(path: str, value: str, labels: list[str], rule: Callable[[str], list[str]]) -> list[FieldError]:
    """Return what is wrong with the first label that is not right."""
    for label in labels:
        problems = rule(label)
        if problems:
            return each(path, value, [f'validating label "{label}": {problem}' for problem in problems])
    return []


def _conditions(conditions: list[Object], path: str) -> FieldErrors:
    seen: set[str] = set()
    for index, condition in enumerate(conditions):
        where, kind, status = f"{path}[{index}]", condition.get("type") or "", condition.get("status") or ""
        allowed = ("True",) if kind in (*_VERDICTS, "Failed") else ("True", "False", "Unknown")
        if not kind:
            yield required(f"{where}.type")
        if not status:
            yield required(f"{where}.status")
        elif status not in allowed:
            yield not_supported(f"{where}.status", status, allowed)
        if kind in _VERDICTS and any(other in seen for other in _VERDICTS if other != kind):
            yield invalid_value(f"{where}.type", kind, "Approved and Denied conditions are mutually exclusive")
        if kind and kind in seen:
            yield duplicate(f"{where}.type", kind)
        seen.add(kind)


def _quoted(text: str) -> str:
    return f'"{text}"'


def _request(encoded: str, signer: str) -> list[FieldError]:
    """Check that a request can be read, and that signers of ours and other programs read the same user in it."""
    try:
        pem = base64.b64decode(encoded, validate=True)
        x509.load_pem_x509_csr(pem)
    except (ValueError, x509.InvalidVersion):
        pem = b""
    if b"-----BEGIN CERTIFICATE REQUEST-----" not in pem:
        return [invalid_value("spec.request", encoded or None, "PEM block type must be CERTIFICATE REQUEST")]
    if signer not in SIGNERS:
        return []
    try:
        ambiguous = subjects.ambiguous(parse_request(encoded).subject)
    except ValueError as error:
        return [invalid_value("spec.request", encoded, str(error))]
    return [invalid_value("spec.request", encoded, AMBIGUOUS)] if ambiguous else []
