"""All verbs on one object: dependencies of the handlers of resources and subresources."""

from __future__ import annotations

from control.server.deleting import Deleting
from control.server.writing import Writing


class Verbs(Writing, Deleting):
    """GET, LIST, WATCH, POST, PUT, PATCH and DELETE."""
