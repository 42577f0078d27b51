"""The exceptions of holobind. Each error is a `HolobindError` and also a standard exception."""


class HolobindError(Exception):
    """Base of the errors that a caller can correct. The message is one line: what came, what is allowed, what to do."""


class ShapeError(HolobindError, ValueError):
    """A tensor or array has a shape that the operation does not accept."""


class DTypeError(HolobindError, TypeError):
    """A tensor or array has a dtype that the operation does not accept."""


class OptionError(HolobindError, ValueError):
    """An argument or option has a value that is not allowed."""


class ExpressionError(HolobindError, ValueError):
    """A symbolic statement has a syntax error; the message names the position."""


class UnknownNameError(HolobindError, LookupError):
    """A name is not in the vocabulary."""


class FileError(HolobindError, ValueError):
    """A file of holobind is missing, damaged, or of another kind or format version."""


class DataError(HolobindError, ValueError):
    """A data file or a matrix is not valid; the message names the file and the line."""


class LabelError(DataError, IndexError):
    """A label is unknown, or its id is out of range."""


class ProcessError(HolobindError, RuntimeError):
    """Another process of a distributed run ended, or cannot be reached."""


class TrainingInterrupted(Exception):  # noqa: N818 - not an error: the user stopped the training
    """Training was interrupted (Ctrl-C or SIGTERM). If a checkpoint was requested, it holds the state of training."""
