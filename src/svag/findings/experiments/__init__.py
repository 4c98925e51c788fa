"""From the records of an experiment to its answer: which runs there are, which are missing, and what they mean."""
