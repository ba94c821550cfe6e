"""Errors of the report that have an exit code of their own. A wrong name is a `lossbench.errors.ConfigError`."""

from lossbench.errors import LossbenchError


class NoRunsError(LossbenchError):
    """Nothing to report on was found where the user pointed."""

    exit_code = 2


class OutputError(LossbenchError):
    """The report cannot be written; an older report in the same place is as it was."""

    exit_code = 5
