"""Answers of other servers, which may be of any length (kube/bounded_answer.py)."""

from kube.bounded_answer import read as read
