"""All verbs on one object: what handlers of resources and of subresources are given."""

from __future__ import annotations

from control.server.deleting import Deleting
from control.server.writing import Writing


class Verbs(Writing, Deleting):
    """GET, LIST, WATCH, POST, PUT, PATCH and DELETE."""
