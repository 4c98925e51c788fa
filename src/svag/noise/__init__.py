"""Measuring G, N and R on a torch model, frozen or while it trains."""
