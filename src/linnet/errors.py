"""The errors a user can meet: one line that names the thing, what was expected, what was found, what to do."""


class LinnetError(Exception):
    """Base of every error that is the user's to read; the command line prints it without a traceback."""

    exit_code = 1


class UsageError(LinnetError):
    """The words of a command or a call do not fit together."""

    exit_code = 2
