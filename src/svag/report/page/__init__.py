"""One self-contained HTML page per experiment: the answer, the charts, how it was measured, every run."""
