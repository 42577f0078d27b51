"""The errors of holobind: each one is a `HolobindError` and also the standard error it refines."""


class HolobindError(Exception):
    """The caller's mistake, told in one line: what came, what was allowed, what to do."""


class ShapeError(HolobindError, ValueError):
    """A tensor whose shape the operation cannot take."""


class DTypeError(HolobindError, TypeError):
    """A tensor of numbers the operation cannot take."""


class OptionError(HolobindError, ValueError):
    """An option with a value outside what is allowed."""


class ExpressionError(HolobindError, ValueError):
    """A statement that the parser cannot read; the text names the position."""


class UnknownNameError(HolobindError, LookupError):
    """A name that the vocabulary does not have."""


class FileError(HolobindError, ValueError):
    """A file that is missing, damaged, or of another format."""


class DataError(HolobindError, ValueError):
    """A file or matrix that is not what it should be; the text names the file and the line."""


class LabelError(DataError, IndexError):
    """A label outside the space of labels."""


class Stopped(Exception):  # noqa: N818 - no error: somebody wanted it
    """Training was told to stop (Ctrl-C, SIGTERM); where it was is in the checkpoint, if one was asked for."""
