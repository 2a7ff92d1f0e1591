"""Exceptions of netproxy; everything else is translated into one of these at the edge where it arises."""

from __future__ import annotations


class ConfigError(Exception):
    """A configuration file or flag cannot be used; the message names the field and says what it should be."""


class UnsupportedModeError(Exception):
    """The proxy mode asked for is not available; the message says why and what to choose instead."""


class WriteError(Exception):
    """The kernel refused a change of rules; nothing of that change is in force in the table that refused it."""


class UnansweredError(WriteError):
    """The result of a change is unknown: the command took too long, was killed or could not be started."""


class WriteTimeout(UnansweredError):
    """A change of rules took too long; the kernel might accept it."""


class ServiceError(Exception):
    """A Service cannot be served as it is written; the message says why."""


class PolicyError(Exception):
    """A network policy cannot be enforced as it is written; the message says why."""
