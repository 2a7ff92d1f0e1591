"""Listening sockets with limits: who may be connected, how large and how slow a request may be."""
