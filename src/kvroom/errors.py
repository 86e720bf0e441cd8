"""Errors by whose fault they are; the kind decides the exit code of the command."""

EXIT_MEASURED = 0
EXIT_BUG = 1
EXIT_INPUT = 2
EXIT_ENGINE = 3
EXIT_VOID = 4


class KvroomError(Exception):
    """One sentence that says what is wrong and where; ``hint`` says what to do about it."""

    exit_code = EXIT_BUG

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class InputError(KvroomError):
    """What the user gave cannot be right: a file, a key, a value, a path, an address."""

    exit_code = EXIT_INPUT


class EngineError(KvroomError):
    """An engine could not be provided, did not start, died, or answered wrongly.

    ``last_lines`` are the end of what it printed, as evidence.
    """

    exit_code = EXIT_ENGINE

    def __init__(self, message: str, hint: str = "", last_lines: tuple[str, ...] = ()) -> None:
        super().__init__(message, hint)
        self.last_lines = last_lines
