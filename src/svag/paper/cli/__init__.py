"""The commands that know the paper."""
