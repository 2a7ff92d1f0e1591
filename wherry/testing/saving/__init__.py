"""Files of clusters for tests: a state that another process loads, and the history of a test."""
