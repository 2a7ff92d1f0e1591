"""A request's body to a JSON-shaped dict of its type: wrong types refused, unknown fields dropped and reported.

The bytes are decoded into the type by msgspec at C speed, and back to builtins, which is what admission and strategies
work on. The raw value is walked once more beside the type for what a decoder does not say (unknown and repeated fields),
as fieldValidation asks. Errors are 400s in the words of upstream's decoder.
"""

from __future__ import annotations

from typing import Any, Literal, NoReturn

import msgspec

from control.decoding import canonical, numbers, repeated_fields, unknown_fields
from control.decoding.decode_errors import (
    duplicates,
    go_message,
    json_problem,
    json_type,
    least_keys,
    most_keys,
    strict_problems,
    summary,
)
from control.decoding.yaml_body import duplicate_keys, load_yaml, strict_error
from kube import errors, resources, serialize
from kube.collecting import uncollected_call
from kube.json_object import Object
from kube.nesting import check_nesting
from kube.schema import wire
from kube.value_count import TooManyValues, check_count

FieldValidation = Literal["Ignore", "Warn", "Strict"]
JSON_TYPES = ("application/json", "")
YAML_TYPES = ("application/yaml", "text/yaml", "application/x-yaml")
SMALL = 8 * 1024
"""Bytes of a body whose decoding creates too few objects to be worth turning the garbage collector off and on."""
ACCEPTED = "application/json, application/yaml, application/vnd.kubernetes.protobuf"


def media_type(content_type: str) -> str:
    """Return a Content-Type without its parameters."""
    if content_type in JSON_TYPES:  # as nearly every client sends it, several times a request
        return content_type
    return content_type.partition(";")[0].strip().lower()


def raw_value(body: bytes, content_type: str) -> Any:
    """Return a body as plain JSON values; raises 415 for a type that is not offered and ValueError for bad text."""
    kind = media_type(content_type)
    if kind in YAML_TYPES:
        return load_yaml(body)
    if kind not in JSON_TYPES:
        raise errors.unsupported_media_type(ACCEPTED)
    return load_json(body)


def load_json(body: bytes) -> Any:
    """Read JSON; raises ValueError in the words of Go's decoder, TooManyValues."""
    check_count(body)
    check_nesting(body)
    try:
        return msgspec.json.decode(body) if len(body) < SMALL else uncollected_call(msgspec.json.decode, body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError(json_problem(body, error)) from error


def unreadable(kind: str, body: bytes, content_type: str, error: ValueError) -> errors.StatusError:
    """Make the 400 for a body that is no JSON or YAML, the 413 for one of too many values."""
    if isinstance(error, TooManyValues):
        return errors.too_much(str(error))
    word = (
        str(error)
        if media_type(content_type) in YAML_TYPES
        else f"couldn't get version/kind; json parse error: {error}"
    )
    return errors.bad_request(f"the object provided is unrecognized (must be of type {kind}): {word} ({summary(body)})")


class Decoder:
    """Decodes bodies into one type. `kind` is the Go kind that messages name."""

    def __init__(self, struct: type[msgspec.Struct], api_version: str, kind: str) -> None:
        self.struct, self.api_version, self.kind = struct, api_version, kind

    def decode(
        self,
        body: bytes,
        content_type: str,
        validation: FieldValidation,
        warnings: list[str],
        *,
        check_kind: bool = True,
    ) -> Object:
        """Return the object; raises 400 (413, 415), and adds to `warnings` what fieldValidation Warn finds."""
        if len(body) < SMALL:
            return self._decode(body, content_type, validation, warnings, check_kind=check_kind)
        return uncollected_call(self._decode, body, content_type, validation, warnings, check_kind=check_kind)

    def _decode(
        self, body: bytes, content_type: str, validation: FieldValidation, warnings: list[str], *, check_kind: bool
    ) -> Object:
        api_version, kind = self.api_version, self.kind
        try:
            raw = self._raw(body, content_type)
        except ValueError as error:
            raise unreadable(self.kind, body, content_type, error) from error
        if isinstance(raw, dict):
            for part in ("kind", "apiVersion"):
                if part in raw and not isinstance(raw[part], str):
                    word = f"couldn't get version/kind; json parse error: json: cannot unmarshal {json_type(raw[part])}"
                    word += f" into Go struct field .{part} of type string"
                    raise errors.bad_request(
                        f"the object provided is unrecognized (must be of type {self.kind}): {word} ({summary(body)})"
                    )
            kind = raw.get("kind") or kind
            api_version = raw.get("apiVersion") or api_version
            if check_kind:
                self._check_kind(api_version, kind)
            elif kind != self.kind:  # of any group version, as old clients send DeleteOptions
                raise errors.bad_request(_unregistered(api_version, kind))
        return self._convert(raw, validation, warnings, body, content_type, kind)

    def _raw(self, body: bytes, content_type: str) -> Any:
        if media_type(content_type) != wire.MEDIA_TYPE:
            return raw_value(body, content_type)
        api_version, kind, message = wire.open_envelope(body)
        module = self.struct.__module__.rpartition(".")[2]
        obj = wire.decode(message, module, self.struct.__name__) if kind in ("", self.kind) else {}
        return obj | {k: v for k, v in (("apiVersion", api_version), ("kind", kind)) if v}

    def convert(
        self,
        raw: Any,
        validation: FieldValidation,
        warnings: list[str],
        body: bytes = b"",
        content_type: str = "",
        kind: str = "",
    ) -> Object:
        """Turn JSON values into the object's shape, checking as `decode` does."""
        return uncollected_call(self._convert, raw, validation, warnings, body, content_type, kind or self.kind)

    def _convert(
        self, raw: Any, validation: FieldValidation, warnings: list[str], body: bytes, content_type: str, kind: str
    ) -> Object:
        media = media_type(content_type)
        text = body if media in JSON_TYPES else b""
        try:
            typed, unknown, overflow, duplicate = self._typed(raw, text)
        except msgspec.ValidationError as error:
            self._refuse(kind, self._first_misfit(raw, text) or go_message(error, raw, self.struct))
        except ValueError as error:
            self._refuse(kind, str(error))
        problems: list[str] = []
        if validation != "Ignore":
            problems = strict_problems(text, unknown) if duplicate else [f'unknown field "{path}"' for path in unknown]
        repeated = duplicate_keys(body) if media in YAML_TYPES and validation != "Ignore" else []
        overflow = overflow or self._too_large(raw, body)
        if overflow:
            self._refuse(kind, overflow)
        if (problems or repeated) and validation == "Strict":
            problems_in_order = [strict_error(repeated), *problems] if repeated else problems
            self._refuse(kind, "strict decoding error: " + ", ".join(problems_in_order))
        if validation == "Warn":
            warnings += [*repeated, *problems]
        obj = serialize.to_dict(typed)
        try:
            canonical.rewrite(obj, self.struct)
        except ValueError as error:
            self._refuse(kind, str(error))
        obj["kind"], obj["apiVersion"] = self.kind, self.api_version
        return obj

    def _typed(self, raw: Any, text: bytes) -> tuple[msgspec.Struct, list[str], str, bool]:
        """Return the typed value, unknown fields, a number's problem, and whether a field of the JSON text is repeated."""
        typed = serialize.convert(raw, self.struct)
        unknown, keys, overflow = unknown_fields.inspect(raw, self.struct)
        if not text or most_keys(text) <= keys or not duplicates(text):
            return typed, unknown, overflow, False
        merged = repeated_fields.read(text, self.struct)
        unknown, _, overflow = unknown_fields.inspect(merged, self.struct)
        return serialize.convert(merged, self.struct), unknown, overflow, True

    def _first_misfit(self, raw: Any, text: bytes) -> str:
        """Return the problem of the first occurrence of a wrong type if a field of the JSON text may be repeated."""
        if text and most_keys(text) > least_keys(raw):
            try:
                repeated_fields.read(text, self.struct)
            except ValueError as error:
                return str(error)
        return ""

    @staticmethod
    def _too_large(raw: Any, body: bytes) -> str:
        """Return the problem of a number in a field without a type, which is stored as it is."""
        if numbers.may_be_too_large(body):
            try:
                numbers.normalized(raw)
            except numbers.NumberError as error:
                return str(error)
        return ""

    def _check_kind(self, api_version: str, kind: str) -> None:
        if api_version != self.api_version:
            if resources.by_kind(api_version, kind) is None:
                self._refuse(kind, _unregistered(api_version, kind), api_version)
            raise errors.bad_request(
                f"the API version in the data ({api_version}) does not match the expected API version"
                f" ({self.api_version})"
            )
        if kind != self.kind:
            if resources.by_kind(api_version, kind) is None:
                self._refuse(kind, _unregistered(api_version, kind), api_version)
            version = api_version.rpartition("/")[2]
            self._refuse(
                kind, f"converting ({version}.{kind}) to ({version}.{self.kind}): unknown conversion", api_version
            )

    def _refuse(self, kind: str, message: str, api_version: str = "") -> NoReturn:
        version = (api_version or self.api_version).rpartition("/")[2]
        raise errors.bad_request(f'{kind} in version "{version}" cannot be handled as a {self.kind}: {message}')


def _unregistered(api_version: str, kind: str) -> str:
    return f'no kind "{kind}" is registered for version "{api_version}" in scheme "pkg/api/legacyscheme/scheme.go:30"'


def directive(option: str) -> FieldValidation:
    """Return the fieldValidation of a request; raises 422 for an unknown one."""
    if option in ("", "Warn"):
        return "Warn"
    if option == "Strict":
        return "Strict"
    if option == "Ignore":
        return "Ignore"
    problem = errors.not_supported("fieldValidation", option, ("Ignore", "Strict", "Warn"))
    raise errors.invalid("meta.k8s.io", "CreateOptions", "", [problem])
