"""What a run left on disk, and reading it back."""
