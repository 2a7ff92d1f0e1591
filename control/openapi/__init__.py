"""OpenAPI v2 and v3 documents of everything that is served, made when first requested."""
