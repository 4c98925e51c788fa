"""Charts of tables that are computed elsewhere: nothing here simulates, fits or averages.

A chart of an experiment is made in three steps: its rows are selected from the finding (a table), drawn (a chart), and
described (a sentence). The charts of the theory are in `svag.paper.charts`.
"""
