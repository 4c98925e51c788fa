"""Does the SDE describe my SGD? From the final metric of a few seeds at several ell to a verdict (thm:sde_svag)."""
