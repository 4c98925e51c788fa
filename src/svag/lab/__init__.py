"""One whole run: data, network, loop, checkpoints."""
