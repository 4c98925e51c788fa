"""The formulas of the paper, corrected: floats in, floats out, one formula in one place."""
