"""A request's body to a JSON-shaped dict of its type: wrong types refused, unknown fields dropped and reported.

The bytes are decoded into the type by msgspec at C speed, and back to builtins, which is what admission and strategies
work on. The raw value is walked once more beside the type for what a decoder does not say (unknown and repeated fields),
as fieldValidation asks. Errors are 400s in the words of upstream's decoder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Literal, NoReturn

import msgspec
import yaml

from control.server import canonical, shapes
from kube import errors, resources, serialize
from kube.errors import StatusError
from kube.schema import wire

FieldValidation = Literal["Ignore", "Warn", "Strict"]
Object = dict[str, Any]
DEEPEST = 1000
"""How deep JSON may nest; Go's decoder stops at 10 000, ours long before the stack does."""
DEEPEST_YAML = 100
JSON_TYPES = ("application/json", "")
YAML_TYPES = ("application/yaml", "text/yaml", "application/x-yaml")
ACCEPTED = "application/json, application/yaml, application/vnd.kubernetes.protobuf"


def media_type(content_type: str) -> str:
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
    check_nesting(body)
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError(_json_problem(body, error)) from error


def check_nesting(body: bytes) -> None:
    """Raise ValueError for text that nests too deep to be decoded safely."""
    if body.count(b"[") + body.count(b"{") <= DEEPEST:
        return
    depth = 0
    in_string = escaped = False
    for byte in body:
        if in_string:
            if escaped:
                escaped = False
            elif byte == 0x5C:
                escaped = True
            elif byte == 0x22:
                in_string = False
        elif byte == 0x22:
            in_string = True
        elif byte in (0x5B, 0x7B):
            depth += 1
            if depth > DEEPEST:
                raise ValueError("exceeded max depth")
        elif byte in (0x5D, 0x7D):
            depth -= 1


def _json_problem(body: bytes, error: Exception) -> str:
    """Word a JSON syntax error as Go's decoder does."""
    text = body.decode("utf-8", "replace")
    try:
        json.loads(text)
    except json.JSONDecodeError as found:
        if found.pos >= len(text.rstrip()):
            return "unexpected end of JSON input"
        character = text[found.pos]
        if "property name" in found.msg:
            return f"invalid character {_quoted(character)} looking for beginning of object key string"
        if found.msg.startswith("Expecting value"):
            return f"invalid character {_quoted(character)} looking for beginning of value"
        if found.msg.startswith("Extra data"):
            return f"invalid character {_quoted(character)} after top-level value"
        if "',' delimiter" in found.msg:
            return f"invalid character {_quoted(character)} after object key:value pair"
        if "':' delimiter" in found.msg:
            return f"invalid character {_quoted(character)} after object key"
        if found.msg.startswith("Unterminated string"):
            return "unexpected end of JSON input"
        return f"invalid character {_quoted(character)} in string literal"
    except RecursionError:
        return "exceeded max depth"
    return str(error)


def _quoted(character: str) -> str:
    return "'\\''" if character == "'" else f"'{character}'"


class _Loader(yaml.CSafeLoader):
    """YAML without aliases (a few lines of them expand to gigabytes) and without surprises in depth or types."""


def _no_times(loader: _Loader, node: yaml.ScalarNode) -> str:
    return str(node.value)


_Loader.add_constructor("tag:yaml.org,2002:timestamp", _no_times)


def load_yaml(body: bytes) -> Any:
    """Read one YAML document as JSON values; raises ValueError."""
    depth = 0
    try:
        for event in yaml.parse(body, Loader=yaml.CSafeLoader):
            if isinstance(event, yaml.AliasEvent):
                raise ValueError("yaml: aliases are not accepted")
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > DEEPEST_YAML:
                    raise ValueError("yaml: exceeded max depth")
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
        return _string_keys(yaml.load(body, Loader=_Loader))  # noqa: S506 -- a subclass of CSafeLoader
    except yaml.YAMLError as error:
        raise ValueError(f"error converting YAML to JSON: yaml: {_first_line(error)}") from error


def _first_line(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    return f"line {mark.line + 1}: {problem}" if mark else str(problem)


def _string_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {_key(k): _string_keys(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_string_keys(v) for v in value]
    return value


def _key(key: Any) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    return str(key)


class Decoder:
    """Decodes bodies into one type. `kind` is the Go kind that messages name."""

    def __init__(self, struct: type[msgspec.Struct], api_version: str, kind: str) -> None:
        self.struct, self.api_version, self.kind = struct, api_version, kind

    def decode(
        self, body: bytes, content_type: str, validation: FieldValidation, warnings: list[str], check_kind: bool = True
    ) -> Object:
        """Return the object; raises 400 (or 415), and adds to `warnings` what fieldValidation Warn finds."""
        api_version, kind = self.api_version, self.kind
        try:
            raw = self._raw(body, content_type)
        except ValueError as error:
            word = f"couldn't get version/kind; json parse error: {error}"
            raise errors.bad_request(
                f"the object provided is unrecognized (must be of type {self.kind}): {word} ({_summary(body)})"
            ) from error
        if isinstance(raw, dict):
            for part in ("kind", "apiVersion"):
                if part in raw and not isinstance(raw[part], str):
                    word = (
                        f"couldn't get version/kind; json parse error: json: cannot unmarshal {_json_type(raw[part])}"
                    )
                    word += f" into Go struct field .{part} of type string"
                    raise errors.bad_request(
                        f"the object provided is unrecognized (must be of type {self.kind}): {word} ({_summary(body)})"
                    )
            kind = raw.get("kind") or kind
            api_version = raw.get("apiVersion") or api_version
            if check_kind:
                self._check_kind(api_version, kind)
        return self.convert(raw, validation, warnings, body, content_type, kind)

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
        kind = kind or self.kind
        try:
            typed = serialize.convert(raw, self.struct)
        except msgspec.ValidationError as error:
            self._refuse(kind, go_message(error, raw, self.struct))
        problems, overflow = self._inspect(raw, body, content_type, validation)
        if overflow:
            self._refuse(kind, overflow)
        if problems and validation == "Strict":
            self._refuse(kind, "strict decoding error: " + ", ".join(problems))
        if validation == "Warn":
            warnings += problems
        obj = serialize.to_dict(typed)
        try:
            canonical.rewrite(obj, self.struct)
        except ValueError as error:
            self._refuse(kind, str(error))
        obj["kind"], obj["apiVersion"] = self.kind, self.api_version
        return obj

    def _inspect(self, raw: Any, body: bytes, content_type: str, validation: FieldValidation) -> tuple[list[str], str]:
        unknown, keys, overflow = shapes.inspect(raw, self.struct)
        if validation == "Ignore":
            return [], overflow
        problems = [f'unknown field "{path}"' for path in unknown]
        # Each key is followed by `":`, and strings can only add to that count: if it is no greater, no key is repeated.
        if body and media_type(content_type) in JSON_TYPES and body.count(b'":') > keys:
            problems = [f'duplicate field "{path}"' for path in duplicates(body)] + problems
        return problems, overflow

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


def _summary(body: bytes) -> str:
    if not body:
        return "<empty>"
    shown = body[:30]
    text = shown.decode("utf-8", "replace") if body[:1] == b"{" else shown.hex()
    return text + " ..." if len(body) > 30 else text


def duplicates(body: bytes) -> list[str]:
    """Return the paths of fields that appear more than once in an object of a JSON text."""

    class Pairs(list[tuple[str, Any]]):
        pass

    found: list[str] = []

    def walk(value: Any, path: str) -> None:
        if isinstance(value, Pairs):
            seen: set[str] = set()
            for key, item in value:
                where = f"{path}.{key}" if path else key
                if key in seen and where not in found:
                    found.append(where)
                seen.add(key)
                walk(item, where)
        elif isinstance(value, list):
            for index, item in enumerate(value):
                walk(item, f"{path}[{index}]")

    walk(json.loads(body, object_pairs_hook=Pairs), "")
    return found


_EXPECTED = re.compile(r"Expected `([^`]*)`, got `([^`]*)`(?: - at `(.*)`)?")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")
_JSON_NAMES = {
    "str": "string",
    "int": "number",
    "float": "number",
    "bool": "bool",
    "array": "array",
    "object": "object",
}


def _json_type(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    names: dict[type, str] = {str: "string", list: "array", dict: "object"}
    return names.get(type(value), "null")


def go_message(error: msgspec.ValidationError, raw: Any, struct: type[msgspec.Struct]) -> str:
    """Say as Go's decoder would which field got a value of a wrong type."""
    match = _EXPECTED.match(str(error))
    if match is None:
        return f"json: {error}"
    expected, got, path = match.groups()
    shape, owner, names = shapes.of(struct), struct.__name__, list[str]()
    for name, index in _STEP.findall(path or ""):
        if name and shape.struct is not None:
            owner = shape.struct.__name__
            names.append(name)
            shape = shapes.fields(shape.struct).get(name, shapes.ANY)
        elif index and shape.item is not None:
            shape = shape.item
    value = _JSON_NAMES.get(got.split(" ")[0], got)
    if value == "number" and shape.go in ("int32", "int64"):
        value = f"number {_at(raw, path or '')}"
    if shape.go == "string" and "date" in expected:
        value = "string"
    if not names:
        return f"json: cannot unmarshal {value} into Go value of type {shape.go}"
    return f"json: cannot unmarshal {value} into Go struct field {owner}.{'.'.join(names)} of type {shape.go}"


def _at(raw: Any, path: str) -> Any:
    for name, index in _STEP.findall(path):
        try:
            raw = raw[name] if name else raw[int(index)]
        except (KeyError, ValueError, IndexError, TypeError):
            return ""
    return raw


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


def join(problems: Iterable[str]) -> str:
    return ", ".join(problems)


__all__ = ["ACCEPTED", "Decoder", "StatusError", "directive", "load_json", "load_yaml", "raw_value"]
