"""Carrying out runs: in worker processes on this machine, as shards of a plan on several, or on a Ray cluster."""
