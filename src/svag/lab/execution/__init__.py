"""Where runs run: worker processes on this machine, shards of a plan on several."""
