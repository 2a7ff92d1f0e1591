"""A request's body to an object of a custom resource: as `control.decoding.decode`, with a schema in the type's place.

Metadata are decoded into their type as everywhere. All else is pruned by the schema, with what is dropped reported as
fieldValidation asks, and then the schema's defaults are put in: on every decode, so that also what a patch makes has them.
"""

from __future__ import annotations

from typing import Any, NoReturn

from control.decoding.decode import JSON_TYPES, YAML_TYPES, Decoder, FieldValidation, media_type, raw_value, unreadable
from control.decoding.decode_errors import duplicates, least_keys, most_keys
from control.decoding.numbers import NumberError, may_be_long, normalized
from control.schemas import embedded
from control.schemas.schema import Schema, fill, prune
from kube import errors
from kube.api import meta_v1
from kube.json_object import Object

ACCEPTED = "application/json, application/yaml"


class CustomDecoder(Decoder):
    """Decodes bodies of one served version of a custom resource."""

    def __init__(self, schema: Schema, api_version: str, kind: str) -> None:
        super().__init__(meta_v1.ObjectMeta, api_version, kind)
        self.schema = schema

    def decode(
        self,
        body: bytes,
        content_type: str,
        validation: FieldValidation,
        warnings: list[str],
        *,
        check_kind: bool = True,
    ) -> Object:
        """Return the object; raises 400 (or 415), and adds to `warnings` what fieldValidation Warn finds."""
        media = media_type(content_type)
        if media not in JSON_TYPES and media not in YAML_TYPES:
            raise errors.unsupported_media_type(ACCEPTED)
        try:
            raw = raw_value(body, content_type)
        except ValueError as error:
            raise unreadable(self.kind, body, content_type, error) from error
        if isinstance(raw, dict) and check_kind:
            for part in ("kind", "apiVersion"):
                if not isinstance(raw.get(part, ""), str):
                    self._reject(f"json: cannot unmarshal into Go struct field .{part} of type string")
            if not raw.get("kind"):
                raise errors.bad_request(f"Object 'Kind' is missing in '{body.decode('utf-8', 'replace')}'")
            given = raw.get("apiVersion") or ""
            if given != self.api_version:
                raise errors.bad_request(
                    f"the API version in the data ({given}) does not match the expected API version ({self.api_version})"
                )
            if raw["kind"] != self.kind:
                meta = raw.get("metadata")
                name = str(meta.get("name", "")) if isinstance(meta, dict) else ""
                problem = errors.invalid_value("kind", raw["kind"], f"must be {self.kind}")
                raise errors.invalid(self.api_version.partition("/")[0], self.kind, name, [problem])
        return self.convert(raw, validation, warnings, body, content_type)

    def convert(
        self,
        raw: Any,
        validation: FieldValidation,
        warnings: list[str],
        body: bytes = b"",
        content_type: str = "",
        kind: str = "",
    ) -> Object:
        """Turn JSON values into an object of the schema, checking as `decode` does; `raw` stays as it is."""
        if not isinstance(raw, dict):
            self._reject("json: cannot unmarshal into Go value of type map[string]interface {}")
        json_body = bool(body) and media_type(content_type) in JSON_TYPES
        if not json_body or may_be_long(body):  # else the values need not be encoded to look at their digits
            try:
                raw = normalized(raw)
            except NumberError as error:
                self._reject(str(error))
        dropped: list[str] = []
        obj: Object = prune(raw, self.schema, "", dropped, resource=True)
        own, inner = list[str](), list[str]()
        obj["metadata"] = self._metadata(raw.get("metadata"), own)
        try:
            embedded.decode(obj, self.schema, "", inner)
        except ValueError as error:
            self._reject(str(error))
        unknown = own + sorted(dropped) + sorted(inner)
        if validation != "Ignore":
            problems = [f'unknown field "{path}"' for path in unknown]
            if json_body and most_keys(body) > least_keys(raw):
                problems = [f'duplicate field "{path}"' for path in duplicates(body)] + problems
            if problems and validation == "Strict":
                self._reject("strict decoding error: " + ", ".join(problems))
            if validation == "Warn":
                warnings += problems
        fill(obj, self.schema)
        obj.setdefault("apiVersion", self.api_version)
        obj.setdefault("kind", self.kind)
        return obj

    def _metadata(self, raw: Any, unknown: list[str]) -> Object:
        try:
            return embedded.decode_metadata(raw, "metadata", unknown)
        except ValueError as error:
            self._reject(str(error).replace("ObjectMeta.", "ObjectMeta.metadata."))

    def _reject(self, message: str) -> NoReturn:
        version = self.api_version.rpartition("/")[2]
        raise errors.bad_request(f'{self.kind} in version "{version}" cannot be handled as a {self.kind}: {message}')
