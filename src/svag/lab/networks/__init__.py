"""The networks of the paper, and the modification that makes their loss scale invariant (sec:failure_mode_1)."""
