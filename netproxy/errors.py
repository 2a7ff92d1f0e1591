"""Exceptions of netproxy; other exceptions are translated into these where they occur."""

from __future__ import annotations


class ConfigError(Exception):
    """A configuration file or flag cannot be used; the message contains the field and its valid values."""


class UnsupportedModeError(Exception):
    """The configured proxy mode is not available; the message contains the reason and an alternative."""


class WriteError(Exception):
    """The kernel refused a change of rules; nothing of that change is in force in the table that refused it."""


class UnansweredError(WriteError):
    """The result of a change is unknown: the command took too long, was killed or could not be started."""


class WriteTimeout(UnansweredError):
    """A change of rules took too long; the kernel might accept it."""


class ServiceError(Exception):
    """A Service cannot be served as specified; the message is the reason."""


class PolicyError(Exception):
    """A network policy cannot be enforced as specified; the message is the reason."""
