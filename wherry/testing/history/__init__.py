"""Histories of tests: each change of an object with its author, in a file that can be stepped through."""
