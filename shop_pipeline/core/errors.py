"""What can go wrong, each said in one sentence: what happened, where, and what to do next."""


class ShopError(Exception):
    """A fault that its reader can mend. `str(error)` is the sentence that is shown; no traceback goes with it.

    `retriable` where it may pass by itself, so that a run may try once more.
    """

    retriable = False


def in_a_line(error: BaseException) -> str:
    """An error as run_log has it."""
    if not isinstance(error, Exception):
        return f"it was cancelled ({type(error).__name__})"
    first = str(error).splitlines()[0] if str(error) else ""
    return first if isinstance(error, ShopError) else f"{type(error).__name__}: {first}"[:1000]


class SettingError(ShopError):
    """A setting is wrong: start-up stops with its name and the reason."""


class ContractError(ShopError):
    """A contract file is wrong: start-up stops with file and line."""


class WrongDate(ShopError):
    """What was typed is not a date, or not one of the dates there are."""


class DayRefused(ShopError):
    """A day broke a rule whose action is fail, or has no source; nothing of it was written."""


class TableUnreadable(ShopError):
    """A table's log or files are damaged; nothing is written to it."""


class NotChecked(ShopError):
    """The comparison could not be made, which is neither a pass nor a mismatch."""


class NotVerified(ShopError):
    """A day was asked of a table that has not been loaded and found equal to its source."""


class SchemaChanged(ShopError):
    """A table's columns have other types than the contract's; nothing was written."""


class TableBusy(ShopError):
    """A table may still be written to by what a killed run left behind; nothing was written."""

    retriable = True


class NoExecutors(ShopError):
    """A Spark cluster gives a run nothing to work with; nothing was written."""

    retriable = True


class CommitConflict(ShopError):
    """Others committed to a table each time that this commit was tried; nothing was written."""

    retriable = True


class SourceUnavailable(ShopError):
    """A source cannot be reached, or broke off; nothing was written."""

    retriable = True


class SourceRefused(ShopError):
    """A source refused to answer: a person must help; nothing was written."""


class DiskFull(ShopError):
    """A disk has no space left; the tables are as they were, or their days are closed until they are loaded again."""

    retriable = True


class EngineLost(ShopError):
    """The Spark server went away in mid-work; what was not committed is not in the tables."""

    retriable = True
