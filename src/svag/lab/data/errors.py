"""What goes wrong with files, as opposed to arguments."""


class DataError(Exception):
    """A data file is missing, corrupt, or cannot be fetched; the message names the file and the fix."""
