"""The paper: its theorems checked, its figures as rows, and the atlas of ladders."""
