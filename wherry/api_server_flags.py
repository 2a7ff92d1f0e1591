"""kube-apiserver's flags on a machine that Wherry set up: /etc/wherry/apiserver.yaml, a mapping of their names to values.

    audit-log-maxage: 30
    shutdown-delay-duration: 20s

Names and units are upstream's. Files have places of their own in /etc/wherry and are not named here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from kube import duration
from wherry.errors import WherryError

DAY = 24 * 3600
Read = Callable[[Any], Any]


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("must be a whole number, not below zero")
    return value


def _seconds(value: Any) -> float:
    found = duration.parse(str(value))
    if found < 0:
        raise ValueError("must not be below zero")
    return found


def _names(value: Any) -> tuple[str, ...]:
    found = value.split(",") if isinstance(value, str) else value
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise ValueError("must be names, as a list or with commas between")
    return tuple(name.strip() for name in found if name.strip())


def _one_of(*words: str) -> Read:
    def read(value: Any) -> str:
        if value not in words:
            raise ValueError(f"must be one of {', '.join(words)}")
        return str(value)

    return read


FLAGS: dict[str, tuple[str, Read]] = {
    "anonymous-auth": ("anonymous_auth", _bool),
    "api-audiences": ("api_audiences", _names),
    "service-account-issuer": ("service_account_issuer", str),
    "authentication-token-webhook-version": ("authentication_webhook_version", _one_of("v1", "v1beta1")),
    "authentication-token-webhook-cache-ttl": ("authentication_webhook_cache_ttl", _seconds),
    "requestheader-allowed-names": ("requestheader_allowed_names", _names),
    "requestheader-username-headers": ("requestheader_username_headers", _names),
    "requestheader-uid-headers": ("requestheader_uid_headers", _names),
    "requestheader-group-headers": ("requestheader_group_headers", _names),
    "requestheader-extra-headers-prefix": ("requestheader_extra_headers_prefix", _names),
    "audit-log-maxsize": ("audit_log_max_bytes", lambda value: _number(value) * 1024 * 1024),
    "audit-log-maxbackup": ("audit_log_backups", _number),
    "audit-log-maxage": ("audit_log_max_age", lambda value: _number(value) * DAY),
    "audit-webhook-mode": ("audit_webhook_mode", _one_of("batch", "blocking", "blocking-strict")),
    "audit-webhook-initial-backoff": ("audit_webhook_initial_backoff", _seconds),
    "audit-webhook-batch-buffer-size": ("audit_webhook_batch_buffer_size", _number),
    "audit-webhook-batch-max-size": ("audit_webhook_batch_max_size", _number),
    "audit-webhook-batch-max-wait": ("audit_webhook_batch_max_wait", _seconds),
    "audit-webhook-batch-throttle-qps": ("audit_webhook_batch_throttle_qps", float),
    "audit-webhook-batch-throttle-burst": ("audit_webhook_batch_throttle_burst", _number),
    "disable-admission-plugins": ("disabled_admission", _names),
    "event-ttl": ("event_ttl", lambda value: int(_seconds(value))),
    "max-requests-inflight": ("max_readonly_in_flight", _number),
    "max-mutating-requests-inflight": ("max_mutating_in_flight", _number),
    "min-request-timeout": ("min_watch_timeout", lambda value: float(_number(value))),
    "request-timeout": ("request_timeout", _seconds),
    "shutdown-delay-duration": ("shutdown_delay", _seconds),
}
"""Flag -> field of ControlConfig, and how its value is read."""


def load(path: Path) -> dict[str, Any]:
    """Return the fields that a file sets, none where there is no file; WherryError names the flag that cannot be meant."""
    try:
        found = yaml.safe_load(path.read_text()) or {}
    except FileNotFoundError:
        return {}
    except (OSError, yaml.YAMLError) as error:
        raise WherryError(f"{path} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise WherryError(f"{path}: write a flag's name and its value on each line, as `audit-log-maxage: 30`")
    changes: dict[str, Any] = {}
    for name, value in found.items():
        if name not in FLAGS:
            raise WherryError(f"{path}: {name}: there is no such flag here; there are {', '.join(sorted(FLAGS))}")
        field, read = FLAGS[name]
        try:
            changes[field] = read(value)
        except (TypeError, ValueError) as error:
            raise WherryError(f"{path}: {name}: {value!r}: {error}") from error
    return changes
