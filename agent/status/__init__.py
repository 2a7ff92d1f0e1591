"""What the API is told of pods: formed by pure functions, written at once and only where it changed."""
