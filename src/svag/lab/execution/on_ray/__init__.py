"""A plan on a Ray cluster; needs the extra `ray`, which is imported by nothing else."""
