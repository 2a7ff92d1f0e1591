"""The ways netproxy itself can fail; everything else is translated into one of these at the edge where it arises."""

from __future__ import annotations


class ConfigError(Exception):
    """A configuration file or flag cannot be used; the message names the field and says what it should be."""


class UnsupportedModeError(Exception):
    """The proxy mode asked for is not available; the message says why and what to choose instead."""


class WriteError(Exception):
    """The kernel refused a change of rules; nothing of that change is in force in the table that refused it."""


class UnansweredError(WriteError):
    """Nobody knows what the kernel makes of a change: the command took too long, was killed or could not be started."""


class WriteTimeout(UnansweredError):
    """A change of rules took too long: it says nothing of whether the kernel would take it."""


class ServiceError(Exception):
    """A Service cannot be served as it is written; the message says why."""


class PolicyError(Exception):
    """A network policy cannot be enforced as it is written; the message says why."""
