"""Removal of secrets from texts and objects that leave the machine in a bug report.

Texts lose what has a usual form of a secret: private keys, tokens, user information in URLs, and values behind a name such as
password. Objects lose the values of environment variables, headers, options of volume drivers and data, which may be anything.
Every pattern takes time in proportion to the text: users write what is in logs and objects.
"""

from __future__ import annotations

import json
import re
from typing import Any

from wherry.command_secrets import secret_arguments, without_command_secrets
from wherry.named_secrets import NAMES, REMOVED, without_named_secrets
from wherry.statement_secrets import without_statement_secrets
from wherry.token_forms import TOKENS, URLS
from wherry.unnamed_secrets import without_unnamed_secrets

_NAME = re.compile(rf"{NAMES}|^auth$", re.IGNORECASE)
_REFERENCE = re.compile(r"(?:name|names|namespace|ref|path|file|seconds|type)s?$", re.IGNORECASE)
_PATTERNS = (
    (
        re.compile(
            r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z0-9 ]{0,40}-----|\Z)", re.DOTALL
        ),
        REMOVED,
    ),
    (re.compile(r"LS0tLS1CRUdJTi[\w+/=]*"), REMOVED),  # PEM in base64
    (
        re.compile(
            r"(?<![\w+/=-])(?:(?:H4sI|UEsDB|KLUv|/Td6WFo|Qlpo|eyJ|ewog|W3si)[\w+/=-]{32,}|e[FJN][\w+/=-]{64,})(?![\w+/=.-])"
            r"(?:(?:\r?\n|\\n)[ \t]{0,32}[\w+/=]{60,})*"
        ),
        REMOVED,
    ),  # whole objects in base64: compressed (gzip, zip, zstd, xz, bzip2, zlib) or as JSON
    (re.compile(r"(?<![\w-])eyJ[\w-]{8,8192}\.[\w-]{8,8192}(?:\.[\w-]{0,8192})?"), REMOVED),  # JSON web tokens
    (re.compile(r"\b[a-z0-9]{6}\.[a-z0-9]{16}\b"), REMOVED),  # bootstrap tokens
    *((pattern, REMOVED) for pattern in TOKENS),
    *((pattern, rf"\1{REMOVED}") for pattern in URLS),
    (re.compile(r"(://)[^/\s\"'<>]{1,2048}@"), rf"\1{REMOVED}@"),
    # A password with a slash or angle bracket that is not encoded; a port and a path are none.
    (re.compile(r"(://[^\s\"'<>/?#@:]{0,256}:)(?![0-9]{1,5}[/?#])[^\s\"'@]{1,256}@"), rf"\1{REMOVED}@"),
    (re.compile(r"((?<![\w:/])//[^\s\"'<>/?#@:]{1,256}:)[^\s\"'@/]{1,256}@"), rf"\1{REMOVED}@"),
    (re.compile(r"(\bjdbc:oracle:\w{1,16}:[^\s\"'/@]{1,128}/)[^\s\"'@]{1,256}@"), rf"\1{REMOVED}@"),
    (re.compile(r"((?<!\S)/p:)[^\s\"']+"), rf"\1{REMOVED}"),  # xfreerdp
    (
        re.compile(r"((?<![^\s\"'`])[^\s\"'`:@]{1,64}:)[^\s\"'`]{1,256}@(?=(?:tcp|udp|unix)[46]?\()"),
        rf"\1{REMOVED}@",
    ),  # MySQL
    (
        re.compile(
            r"(?<![A-Za-z0-9])((?:sig|SharedAccessSignature|(?:X-\w{3,4}-)?signature)=)[\w%+/=.~-]{8,}", re.IGNORECASE
        ),
        rf"\1{REMOVED}",
    ),
    (re.compile(r"(\bcertificate[- ]key\s{1,8})[0-9a-f]{64}\b"), rf"\1{REMOVED}"),
    (re.compile(r"([?&]key=)[\w-]{16,}"), rf"\1{REMOVED}"),
    (re.compile(r"((?<![\w-])(?:requirepass|masterauth|bindpw|rootbindpw)\s{1,8})[^\s\"']+"), rf"\1{REMOVED}"),
    (
        re.compile(r"(\bmachine\s{1,8}\S{1,256}\s{1,8}login\s{1,8}\S{1,256}\s{1,8}password\s{1,8})[^\s\"']+"),
        rf"\1{REMOVED}",
    ),  # .netrc
    (
        re.compile(r"(--from-literal(?:=|\s{1,8})[\w.-]{1,253}=)\\{0,15}(?:\"[^\"\n]*\"?|'[^'\n]*'?)"),
        rf"\1{REMOVED}",
    ),  # kubectl create secret
    (re.compile(r"\b((?:bearer|basic) )[\w.~+/=-]{8,}", re.IGNORECASE), rf"\1{REMOVED}"),
)
_OPEN, _CLOSE = r"(?:<|\\{1,15}u003c|&lt;)", r"(?:>|\\{1,15}u003e|&gt;)"
_ELEMENT = re.compile(
    rf"({_OPEN}[\w:.-]{{0,64}}?{NAMES}[\w.-]{{0,64}}?{_CLOSE})(?!{_OPEN}).+?(?={_OPEN}|\Z)", re.IGNORECASE | re.DOTALL
)
"""An element of XML with its text, as it is, in JSON or escaped."""
_VALUES = frozenset(
    {"data", "stringData", "binaryData", "volumeAttributes", "attachmentMetadata", "options", "parameters"}
)
"""Fields with maps of which every value is removed."""
_DATA = frozenset({"data", "stringData", "binaryData"})
"""Those of them that are removed in every form, also of an object that is wrong."""
_LISTS = frozenset({"env", "httpHeaders", "headers", "queryParams", "set", "add"})
"""Fields with lists of names and values; those of routes are matches and modified headers."""
_REFERENCE_FIELDS = frozenset({"apiGroup", "kind", "name", "namespace", "scope"})
_LEFT_OUT = frozenset({"managedFields", "kubectl.kubernetes.io/last-applied-configuration"})


def redacted(text: str) -> str:
    """Return a text without what has a usual form of a secret."""
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    text = without_statement_secrets(_ELEMENT.sub(rf"\1{REMOVED}", text))
    return without_named_secrets(without_command_secrets(without_unnamed_secrets(text)))


def without_values(obj: Any) -> Any:
    """Return an object, or a list of objects, without what may be secret in it and without managed fields."""
    if isinstance(obj, list):
        secrets = frozenset(secret_arguments(obj))
        return [REMOVED if index in secrets else without_values(item) for index, item in enumerate(obj)]
    if not isinstance(obj, dict):
        return _text(obj) if isinstance(obj, str) else obj
    return {key: _field(key, value) for key, value in obj.items() if key not in _LEFT_OUT} | _command_line(obj)


def _command_line(obj: dict[Any, Any]) -> dict[str, Any]:
    """Return a container's command and arguments without secrets: arguments are those of the program that the command names."""
    command, arguments = obj.get("command"), obj.get("args")
    if not isinstance(command, list) or not isinstance(arguments, list):
        return {}
    line = without_values([*command, *arguments])
    return {"command": line[: len(command)], "args": line[len(command) :]}


def _text(text: str) -> str:
    """Return a text of an object without secrets; tools keep whole objects as JSON in annotations."""
    if text.lstrip()[:1] in ("{", "["):
        try:
            found = json.loads(text)
            return redacted(json.dumps(without_values(found), ensure_ascii=False))
        except (ValueError, RecursionError):
            pass
    return redacted(text)


def _field(key: str, value: Any) -> Any:
    if key in _VALUES and isinstance(value, dict) and not (key == "parameters" and value.keys() <= _REFERENCE_FIELDS):
        return dict.fromkeys(value, REMOVED)
    if key in _DATA and isinstance(value, (str, list)):
        return REMOVED if value else value
    if key in _LISTS and isinstance(value, list):
        return [_variable(one) for one in value]
    if _NAME.search(key) and not _REFERENCE.search(key):
        if isinstance(value, str):
            return REMOVED
        if isinstance(value, list):
            return [REMOVED if isinstance(each, str) else without_values(each) for each in value]
    return without_values(value)


def _variable(one: Any) -> Any:
    return {**one, "value": REMOVED} if isinstance(one, dict) and "value" in one else without_values(one)
