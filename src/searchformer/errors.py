"""The one error that users see: the command line prints it as a single line and exits with 1."""


class SearchformerError(Exception):
    """Input from outside is not what was expected. The message says what was expected, what was found, what to do."""
