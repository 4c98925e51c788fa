"""The conclusions: records or bare numbers in, answers that speak out."""
