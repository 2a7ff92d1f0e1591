"""The rules for names, labels and ports (apimachinery's pkg/util/validation), each returning what is wrong in its words."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

from kube.bounded_cache import on_forget

Check = Callable[[str], list[str]]
_LONGEST_CACHED = 320

_DNS1123_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS1123_SUBDOMAIN = rf"{_DNS1123_LABEL}(\.{_DNS1123_LABEL})*"
_DNS1035_LABEL = "[a-z]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE = f"({_QUALIFIED})?"
_UNDERSCORED_LABEL = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_UNDERSCORED_SUBDOMAIN = rf"{_UNDERSCORED_LABEL}(\.{_UNDERSCORED_LABEL})*"
_CONFIG_KEY = "[-._a-zA-Z0-9]+"

# What is matched: as above, which messages show, but keeping nothing for each label (group_patterns.py).
_LABEL_PATTERN = re.compile(_DNS1123_LABEL)
_SUBDOMAIN_PATTERN = re.compile(rf"{_DNS1123_LABEL}(?:\.{_DNS1123_LABEL})*+")
_UNDERSCORED_PATTERN = re.compile(
    rf"{_UNDERSCORED_LABEL}(?:\.[a-z0-9]([-_a-z0-9]*[a-z0-9])?|\._[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*+"
)
_DNS1035_PATTERN = re.compile(_DNS1035_LABEL)
_QUALIFIED_PATTERN = re.compile(_QUALIFIED)
_LABEL_VALUE_PATTERN = re.compile(_LABEL_VALUE)
_CONFIG_KEY_PATTERN = re.compile(_CONFIG_KEY)

_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character"
)
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character"
)
_DNS1035_RULE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and "
    "end with an alphanumeric character"
)
_QUALIFIED_RULE = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
)
_LABEL_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character"
)


@functools.cache
def _example(rule: str, examples: tuple[str, ...], pattern: str) -> str:
    shown = ",  or ".join(f"'{e}'" for e in examples)  # two spaces: upstream's RegexError puts them there
    return f"{rule} (e.g. {shown}, regex used for validation is '{pattern}')"


def _too_long(limit: int, unit: str = "bytes") -> str:
    return f"must be no more than {limit} {unit}"


def _against(value: str, limit: int, pattern: re.Pattern[str], message: str, unit: str = "characters") -> list[str]:
    """Check a name against its pattern; upstream counts bytes, but names them so only for keys and values of labels."""
    problems = []
    if len(value.encode()) > limit:
        problems.append(_too_long(limit, unit))
    if not pattern.fullmatch(value):
        problems.append(message)
    return problems


def _cached(check: Check) -> Check:
    """Keep the answers for the names seen last: clients use the same few thousand again and again."""
    answers = functools.lru_cache(4096)(lambda value: tuple(check(value)))
    on_forget(answers.cache_clear)

    @functools.wraps(check)
    def listed(value: str) -> list[str]:
        # Tested here and not by `bounded_cache`: that would be a second call for each name and label of an object.
        return list(answers(value)) if len(value) <= _LONGEST_CACHED else check(value)

    return listed


@_cached
def dns1123_label(value: str) -> list[str]:
    message = _example(_LABEL_RULE, ("my-name", "123-abc"), _DNS1123_LABEL)
    if _SUBDOMAIN_PATTERN.fullmatch(value):
        message = "must not contain dots"
    return _against(value, 63, _LABEL_PATTERN, message)


@_cached
def dns1123_subdomain(value: str) -> list[str]:
    return _subdomain(value, "characters")


def _subdomain(value: str, unit: str) -> list[str]:
    message = _example(_SUBDOMAIN_RULE, ("example.com",), _DNS1123_SUBDOMAIN)
    return _against(value, 253, _SUBDOMAIN_PATTERN, message, unit)


def dns1123_subdomain_with_underscore(value: str) -> list[str]:
    """A search domain: as a subdomain, but underscores may stand where letters do (_tcp.example.com)."""
    rule = _SUBDOMAIN_RULE.replace("characters, '-'", "characters, '_', '-'")
    return _against(value, 253, _UNDERSCORED_PATTERN, _example(rule, ("example.com",), _UNDERSCORED_SUBDOMAIN))


def dns1035_label(value: str) -> list[str]:
    return _against(value, 63, _DNS1035_PATTERN, _example(_DNS1035_RULE, ("my-name", "abc-123"), _DNS1035_LABEL))


def c_identifier(value: str) -> list[str]:
    if re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", value):
        return []
    return [
        "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters "
        "or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')"
    ]


SUBDOMAIN_LENGTH = 253


@_cached
def qualified_name(value: str) -> list[str]:
    """A label or annotation key: an optional DNS prefix and a slash, then a name of at most 63 characters."""
    prefix, slash, name = value.rpartition("/")
    if value.count("/") > 1:
        examples = "'MyName',  or 'my.name',  or '123-abc'"
        return [
            f"a valid label key {_QUALIFIED_RULE} (e.g. {examples}, regex used for validation is '{_QUALIFIED}') with an "
            "optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    problems = []
    if slash:
        if not prefix:
            problems.append("prefix part must be non-empty")
        else:
            problems += [f"prefix part {p}" for p in _subdomain(prefix, "bytes")]
    if not name:
        problems.append("name part must be non-empty")
    elif len(name.encode()) > 63:
        problems.append(f"name part {_too_long(63)}")
    if not _QUALIFIED_PATTERN.fullmatch(name):
        examples = "'MyName',  or 'my.name',  or '123-abc'"
        problems.append(f"name part {_QUALIFIED_RULE} (e.g. {examples}, regex used for validation is '{_QUALIFIED}')")
    return problems


@_cached
def label_value(value: str) -> list[str]:
    examples = "'MyValue',  or 'my_value',  or '12345'"
    message = f"{_LABEL_VALUE_RULE} (e.g. {examples}, regex used for validation is '{_LABEL_VALUE}')"
    return _against(value, 63, _LABEL_VALUE_PATTERN, message, "bytes")


def path_segment(value: str) -> list[str]:
    """A name that becomes part of a path or a storage key (RBAC roles and such)."""
    if value in (".", ".."):
        return [f"may not be '{value}'"]
    return [f"may not contain '{c}'" for c in ("/", "%") if c in value]


def port_name(value: str) -> list[str]:
    """An IANA service name: at most 15 characters, lower case letters, digits and single hyphens, with a letter."""
    problems = []
    if len(value) > 15:
        problems.append("must be no more than 15 characters")
    if not re.fullmatch("[-a-z0-9]*", value):
        problems.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search("[a-z]", value):
        problems.append("must contain at least one letter (a-z)")
    if "--" in value:
        problems.append("must not contain consecutive hyphens")
    if value and (value[0] == "-" or value[-1] == "-"):
        problems.append("must not begin or end with a hyphen")
    return problems


def port_number(value: int) -> list[str]:
    return [] if 1 <= value <= 65535 else ["must be between 1 and 65535, inclusive"]


def env_var_name(value: str) -> list[str]:
    """Since v1.32 (relaxed validation): any printable ASCII but '='."""
    if not value:
        return ["environment variable name must not be empty"]
    if not re.fullmatch(r"[ -<>-~]+", value):
        return ["a valid environment variable name must consist only of printable ASCII characters other than '='"]
    return []


def config_map_key(value: str) -> list[str]:
    problems = _against(
        value,
        253,
        _CONFIG_KEY_PATTERN,
        "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
        "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')",
    )
    if value in (".", ".."):
        problems.append(f"must not be '{value}'")
    elif value.startswith(".."):
        problems.append("must not start with '..'")
    return problems
