"""One run, from its spec to its last step."""
