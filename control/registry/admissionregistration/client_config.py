"""Validates the clientConfig of a webhook, a URL or a Service of the cluster, and the versions of reviews that it accepts."""

from __future__ import annotations

import re

from control.registry.checks import Errors, FieldErrors, each, repeated
from kube import names, urls
from kube.errors import invalid_value, required
from kube.json_object import Object

ACCEPTED = {"v1", "v1beta1"}
"""Versions of reviews that the server speaks."""
_FORM = "; desired format: https://host[/path]"
_PORT = re.compile(r"(?:[^@]*@)?(?:\[[^]]*\]|[^:]*)(:[0-9]*[^0-9].*)")
"""A host whose port is not a number; group 1 is the port with its colon."""


def validate_client(client: Object | None, path: str) -> Errors:
    client = client or {}
    url, service = client.get("url"), client.get("service")
    if (url is None) == (service is None):
        return [required(path, "exactly one of url or service is required")]
    if service is None:
        return _url(str(url), f"{path}.url")
    where, errors = f"{path}.service", []
    for key in ("name", "namespace"):
        if not service.get(key):
            errors.append(required(f"{where}.{key}"))
    port = service.get("port")
    if port is not None and (problems := names.port_number(port)):
        errors.append(invalid_value(f"{where}.port", port, "port is not valid: " + ", ".join(problems)))
    return [*errors, *_path(service.get("path"), f"{where}.path")]


def _path(text: str | None, path: str) -> FieldErrors:
    if not text or text == "/":
        return
    if not text.startswith("/"):
        yield invalid_value(path, text, "must start with a '/'")
    steps = text[1:].removesuffix("/").split("/")
    for index, step in enumerate(steps):
        if not step:
            yield invalid_value(path, text, f"segment[{index}] may not be empty")
            continue
        yield from each(path, text, [f"segment[{index}]: {p}" for p in names.dns1123_subdomain(step)])


def _url(url: str, path: str) -> Errors:
    try:
        parts = urls.split(url)
    except ValueError as error:
        return [required(path, f"url must be a valid URL: {error}{_FORM}")]
    if problem := _PORT.fullmatch(parts.netloc):
        detail = f'parse "{url}": invalid port "{problem[1]}" after host'
        return [required(path, f"url must be a valid URL: {detail}{_FORM}")]
    errors: Errors = []
    if parts.scheme != "https":
        errors.append(invalid_value(path, parts.scheme, f"'https' is the only allowed URL scheme{_FORM}"))
    user, at, host = parts.netloc.rpartition("@")
    if not host:
        errors.append(invalid_value(path, host, f"host must be specified{_FORM}"))
    if at:
        errors.append(invalid_value(path, user, "user information is not permitted in the URL"))
    if parts.fragment:
        errors.append(invalid_value(path, parts.fragment, "fragments are not permitted in the URL"))
    if parts.query:
        errors.append(invalid_value(path, parts.query, "query parameters are not permitted in the URL"))
    return errors


def validate_reviews(versions: list[str], path: str, detail: str = "", *, lenient: bool = False) -> FieldErrors:
    """Check the versions of reviews that a webhook accepts; with `lenient` it may accept none of the server's."""
    if not versions:
        yield required(path, detail)
        return
    again = repeated(versions)
    for index, version in enumerate(versions):
        if index in again:
            yield invalid_value(f"{path}[{index}]", version, "duplicate version")
        else:
            yield from each(f"{path}[{index}]", version, names.dns1035_label(version))
    if not lenient and not ACCEPTED & set(versions):
        yield invalid_value(path, versions, "must include at least one of v1, v1beta1")
