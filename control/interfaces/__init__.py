"""Interfaces and values that the server, the registry and admission share.

Requests (`requestinfo.py`) and their owners (`acting.py`), the attributes of admission (`admission.py`), the lookup of
objects (`lookup.py`), the default among classes (`default_class.py`) and compiled label selectors (`compiled_selectors.py`).
"""
