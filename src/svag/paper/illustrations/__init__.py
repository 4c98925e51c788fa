"""Tables behind the drawings of the theory."""
