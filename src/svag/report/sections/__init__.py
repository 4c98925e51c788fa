"""What each kind of experiment says: its answers, and its figures."""
