"""Errors of clusters for tests: one sentence that says what is wrong."""

from __future__ import annotations


class ClusterError(Exception):
    """The cluster cannot do what was asked for: a wrong argument, an object that the API server refuses."""


class WaitError(ClusterError, AssertionError):
    """A condition was not met in time; the message has the last state that was seen."""
