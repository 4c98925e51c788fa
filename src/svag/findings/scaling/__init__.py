"""Where did linear scaling fail? From the final test errors of a ladder to a verdict (fig:lsr_acc_gnr)."""
