"""Requests and answers: what they are, how they are read and written, and how they are passed on to others."""
