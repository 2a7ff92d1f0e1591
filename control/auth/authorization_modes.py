"""Converts --authorization-mode and related flags to the entries of an AuthorizationConfiguration."""

from __future__ import annotations

from control.auth.authorization_configuration import Entry
from control.auth.fields import ConfigurationError
from control.auth.webhooks.access import Settings
from control.config import ControlConfig

DEFAULT = ("Node", "RBAC")
MODES = (*DEFAULT, "Webhook", "ABAC", "AlwaysAllow", "AlwaysDeny")
WEBHOOK_TIMEOUT = 30.0


def entries(config: ControlConfig) -> tuple[Entry, ...]:
    """Return the authorizers in order; raises ConfigurationError with upstream's message."""
    modes = config.authorization_modes
    if not modes:
        raise ConfigurationError("at least one authorization-mode must be passed")
    for mode in modes:
        if mode not in MODES:
            raise ConfigurationError(f'authorization-mode "{mode}" is not a valid mode')
        if modes.count(mode) > 1:
            raise ConfigurationError(f"authorization-mode {list(modes)} has mode specified more than once")
    for mode, file, flag in (
        ("ABAC", config.authorization_policy_file, "policy-file"),
        ("Webhook", config.authorization_webhook_file, "webhook-config-file"),
    ):
        if mode in modes and file is None:
            raise ConfigurationError(f"authorization-mode {mode}'s authorization config file not passed")
        if mode not in modes and file is not None:
            raise ConfigurationError(f"cannot specify --authorization-{flag} without mode {mode}")
    return tuple(_webhook(config) if mode == "Webhook" else Entry(mode, mode.lower()) for mode in modes)


def _webhook(config: ControlConfig) -> Entry:
    settings = Settings(
        "default",
        config.authorization_webhook_version,
        config.authorization_webhook_authorized_ttl,
        config.authorization_webhook_unauthorized_ttl,
    )
    return Entry("Webhook", "default", settings, config.authorization_webhook_file, WEBHOOK_TIMEOUT)
