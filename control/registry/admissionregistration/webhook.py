"""Defaults and validation of webhook configurations.

Upstream: pkg/apis/admissionregistration/v1/defaults.go, and validation/validation.go, in its order. An update may keep what was
valid when it was stored: each rule of `Leniency` holds only where the stored object keeps to it.
"""

from __future__ import annotations

from dataclasses import dataclass

from control.registry.admissionregistration.client_config import ACCEPTED, validate_client, validate_reviews
from control.registry.admissionregistration.expressions import match_conditions
from control.registry.admissionregistration.matching import RULE
from control.registry.checks import FieldErrors, label_selector, repeated
from control.registry.defaults import Defaults, absent
from control.registry.rows import Rows
from control.registry.rules import between, enum, require_enum, text
from control.registry.strategy import Strategy
from control.registry.table_cells import AGE, NAME, Column, count
from kube import names
from kube.errors import FieldError, duplicate, invalid_value, required
from kube.json_object import Object

_NO_SIDE_EFFECTS = ("None", "NoneOnDryRun")
_SIDE_EFFECTS = ("None", "NoneOnDryRun", "Some", "Unknown")
_SELECTORS = ("namespaceSelector", "objectSelector")


def qualified_webhook_name(name: str, path: str) -> list[FieldError]:
    """Check a name of at least three parts, a.b.c."""
    if not name:
        return [required(path)]
    if problems := names.dns1123_subdomain(name):
        return [invalid_value(path, name, ",".join(problems))]
    if name.count(".") < 2:
        return [invalid_value(path, name, "should be a domain with at least three segments separated by dots")]
    return []


@dataclass(frozen=True)
class Leniency:
    """Rules that an update need not keep, since the stored object does not."""

    side_effects: bool = False
    review_versions: bool = False
    unique_names: bool = False
    selectors: bool = False
    match_conditions: bool = False

    @classmethod
    def of(cls, new: list[Object], old: list[Object]) -> Leniency:
        """Find what the webhooks of a stored object do not keep to, and whether the match conditions stay the same."""
        stored = [webhook.get("admissionReviewVersions") or [] for webhook in old]
        selectors = [webhook.get(key) for webhook in old for key in _SELECTORS]
        return cls(
            side_effects=any(webhook.get("sideEffects") not in _NO_SIDE_EFFECTS for webhook in old),
            review_versions=any(versions and not ACCEPTED & {*versions} for versions in stored),
            unique_names=bool(repeated([webhook.get("name") or "" for webhook in old])),
            selectors=any(label_selector(selector, "") for selector in selectors),
            match_conditions=[w.get("matchConditions") or [] for w in new]
            == [w.get("matchConditions") or [] for w in old],
        )


_REQUESTS = Rows(
    ("name", text(qualified_webhook_name)),
    ("rules[*]", RULE),
    ("failurePolicy?", enum("Fail", "Ignore")),
    ("matchPolicy?", enum("Equivalent", "Exact")),
)
_EFFECTS = {
    lenient: Rows(("sideEffects", require_enum(*effects, detail=f"must specify one of {', '.join(effects)}")))
    for lenient, effects in ((False, _NO_SIDE_EFFECTS), (True, _SIDE_EFFECTS))
}
_TIMEOUT = Rows(("timeoutSeconds", between(1, 30, "the timeout value must be between 1 and 30 seconds")))
_CLIENT = Rows(("reinvocationPolicy?", enum("IfNeeded", "Never")), ("clientConfig", validate_client))


def _validate_webhook(webhook: Object, path: str, lenient: Leniency) -> FieldErrors:
    for rows in (_REQUESTS, _EFFECTS[lenient.side_effects], _TIMEOUT):
        yield from rows(webhook, path)
    for key in _SELECTORS:
        yield from label_selector(webhook.get(key), f"{path}.{key}", check_values=not lenient.selectors)
    yield from _CLIENT(webhook, path)
    if not lenient.match_conditions:
        yield from match_conditions(webhook.get("matchConditions"), f"{path}.matchConditions")
    versions = webhook.get("admissionReviewVersions") or []
    where, detail = f"{path}.admissionReviewVersions", "must specify one of v1, v1beta1"
    yield from validate_reviews(versions, where, detail, lenient=lenient.review_versions)


_VALIDATING = Defaults(
    ("webhooks[*].failurePolicy", absent("Fail")),
    ("webhooks[*].matchPolicy", absent("Equivalent")),
    ("webhooks[*].timeoutSeconds", absent(10)),
    ("webhooks[*].{namespaceSelector,objectSelector}", absent({})),
    ("webhooks[*].clientConfig.service.port", absent(443)),
    ("webhooks[*].rules[*].scope", absent("*")),
)
_MUTATING = Defaults(*_VALIDATING.rows, ("webhooks[*].reinvocationPolicy", absent("Never")))


class WebhookConfigurationStrategy(Strategy):
    columns = (NAME, Column("Webhooks", count("webhooks"), "How many webhooks there are.", type="integer"), AGE)
    allow_unconditional_update = False

    def default(self, obj: Object) -> None:
        (_MUTATING if self.resource.kind.startswith("Mutating") else _VALIDATING)(obj)

    def validate(self, obj: Object) -> list[FieldError]:
        return self._validate(obj, Leniency())

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        return self._validate(obj, Leniency.of(obj.get("webhooks") or [], old.get("webhooks") or []))

    def _validate(self, obj: Object, lenient: Leniency) -> list[FieldError]:
        errors: list[FieldError] = []
        seen: set[str] = set()
        for index, webhook in enumerate(obj.get("webhooks") or ()):
            path, name = f"webhooks[{index}]", webhook.get("name") or ""
            errors += _validate_webhook(webhook, path, lenient)
            if name in seen and not lenient.unique_names:
                errors.append(duplicate(f"{path}.name", name))
            if name:
                seen.add(name)
        return errors
