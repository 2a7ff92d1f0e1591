"""Limit on the comparisons of one attempt to schedule a pod, for products of two lists."""

from __future__ import annotations


class OutOfSteps(Exception):
    """The attempt compares too much."""


class Steps:
    """Counts down; a step is a comparison of a few microseconds."""

    def __init__(self, most: int) -> None:
        self.left = most

    def take(self, number: int = 1) -> None:
        """Use up steps; raises OutOfSteps where none are left."""
        self.left -= number
        if self.left < 0:
            raise OutOfSteps
