"""Verdicts from bare numbers: does the SDE describe SGD, and how far did linear scaling hold?"""
