"""Interfaces between the server, the registry and admission: admission plugins, and the lookup of objects."""
