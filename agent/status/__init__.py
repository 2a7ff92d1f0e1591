"""Pods' statuses: formed by pure functions, written at once and only where they changed."""
