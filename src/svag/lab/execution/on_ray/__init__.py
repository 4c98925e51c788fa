"""Carrying out a plan on a Ray cluster. Only this folder imports the extra `ray`."""
