"""What describes a run, in full and frozen."""
