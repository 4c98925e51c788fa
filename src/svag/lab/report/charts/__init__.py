"""Pictures of tables that are computed elsewhere: nothing here simulates, fits or averages.

The charts of the theory draw rows of `svag.findings`. Those of an experiment first pick their rows out of its finding
(a table), then draw them (a chart) and say what there is to see (a sentence).
"""
