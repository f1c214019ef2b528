"""The exceptions. Errors about descriptors and bindings carry every problem, with its parts as attributes."""

from collections.abc import Sequence
from dataclasses import dataclass

#: DirectML's result code for an invalid descriptor.
E_INVALIDARG = 0x80070057

#: Similarity ratio (difflib's) from which an error suggests a known name for an unknown one.
SIMILARITY = 0.75


def a_type(value: object) -> str:
    """The type of a value for messages: `a list`, `an int`, `a numpy.float32`."""
    name = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


@dataclass(frozen=True)
class Problem:
    """One broken rule: the member in DirectML's spelling, the rule's name, the expected value, the actual."""

    member: str
    rule: str
    expected: str
    got: str

    def __str__(self) -> str:
        return f"{self.member} is {self.got}, must be {self.expected}"


class ProblemsError(ValueError):
    """Base of the errors that list problems of one operator."""

    def __init__(self, operator: str, problems: Sequence[Problem]) -> None:
        self.operator = operator
        self.problems = tuple(problems)
        self.hresult = E_INVALIDARG
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        super().__init__("\n  ".join([f"{operator} has {count}", *map(str, problems)]))

    def __reduce__(self) -> tuple[type["ProblemsError"], tuple[str, tuple[Problem, ...]]]:
        """Keep the attributes when pickled: by default, an exception is rebuilt from its text alone."""
        return type(self), (self.operator, self.problems)


class DescriptorError(ProblemsError):
    """A descriptor breaks DirectML's rules. `problems` has all of them, `hresult` is E_INVALIDARG."""


class BindingError(ProblemsError):
    """The bound arrays do not fit the compiled operator. Nothing was launched and no output was changed."""


class SettingError(ValueError):
    """An environment variable of cudml has a value that cannot be used."""


class CompilerError(RuntimeError):
    """A kernel could not be compiled: no compiler, a missing compiler feature, or an error in the source."""


class DeviceError(RuntimeError):
    """A device cannot be used; the message names it and says what is missing."""


class KernelError(RuntimeError):
    """A kernel failed: it gave up waiting for other blocks of its grid, or the emulator found a defect.

    A GPU runs asynchronously, so the next call on that GPU raises the error.

    Attributes
    ----------
    reports : list of str
        One entry per defect: file and line, what happened, block and thread, the other access if any.
    """

    def __init__(self, reports: Sequence[str]) -> None:
        self.reports = list(reports)
        super().__init__("\n".join(reports))

    def __reduce__(self) -> tuple[type["KernelError"], tuple[list[str]]]:
        """As for `ProblemsError`."""
        return type(self), (self.reports,)


def not_installed(adapter: str, extra: str, error: ModuleNotFoundError) -> ModuleNotFoundError:
    """The error of importing an adapter without the package that it adapts to: says what to install."""
    message = f"cudml.{adapter} needs {error.name}, which is not installed: pip install 'cudml[{extra}]'"
    return ModuleNotFoundError(message, name=error.name)


class ModelError(ValueError):
    """A JSON model or a dictionary is malformed.

    Attributes
    ----------
    source, path : str
        The file ("from_dict" for a dictionary) and the keys that lead to the value.
    expected, got : str
        The allowed values, and the actual one.
    others : tuple of ModelError
        The errors about other malformed values; the message has a line for each.
    """

    def __init__(
        self, path: str, expected: str, got: str, source: str = "", others: Sequence["ModelError"] = ()
    ) -> None:
        self.source = source
        self.path = path
        self.expected = expected
        self.got = got
        self.others = tuple(others)
        where = f"{source}: {path}" if source else path
        super().__init__("\n  ".join([f"{where} is {got}, must be {expected}", *map(str, others)]))

    def __reduce__(self) -> tuple[type["ModelError"], tuple[str, str, str, str, tuple["ModelError", ...]]]:
        """As for `ProblemsError`."""
        return type(self), (self.path, self.expected, self.got, self.source, self.others)
