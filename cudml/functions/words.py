"""Other libraries' names of arguments, and what an error recommends instead of each."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, TypeVar

from cudml.functions.arguments import wrong_argument

Function = TypeVar("Function", bound=Callable[..., Any])

_MODE = "mode='largest' or mode='smallest'"
_SIZES = "sizes=, numbers of elements"

#: Arguments of other libraries' top-k functions, and their counterparts in cudml.
TOP_K: Mapping[str, str] = {
    **dict.fromkeys(("largest", "descending", "ascending", "is_ascend", "reverse"), _MODE),
    **dict.fromkeys(("dim", "reduction_dimension"), "axis="),
    **dict.fromkeys(("num", "n", "top_k", "num_results"), "k"),
    **dict.fromkeys(("sequence_lengths", "seq_lens", "row_lengths"), "lengths="),
    **dict.fromkeys(("offsets", "indptr", "row_splits"), "lengths=: cudml.torch.topk takes offsets"),
    "stable": "left out: ties go to the lower index",
}

#: The same for slices, reversals and recurrent layers.
SLICE: Mapping[str, str] = {
    **dict.fromkeys(("starts", "start", "begin", "start_indices"), "offsets="),
    **dict.fromkeys(("size", "slice_sizes", "shape"), "sizes="),
    **dict.fromkeys(("ends", "end", "stops", "stop", "limit_indices"), _SIZES),
    **dict.fromkeys(("steps", "step"), "strides="),
    **dict.fromkeys(("axes", "axis", "dim"), "left out: offsets= has a number for each dimension"),
}
REVERSE_SUBSEQUENCES: Mapping[str, str] = {
    **dict.fromkeys(("lengths", "seq_lengths", "sequence_lens", "seq_lens"), "sequence_lengths="),
    **dict.fromkeys(("dim", "time_axis", "seq_axis", "seq_dim"), "axis="),
    "batch_axis": "left out: sequence_lengths= broadcasts to a with 1 at the axis",
}
GRU: Mapping[str, str] = {
    **dict.fromkeys(("hx", "h_0", "initial_h", "initial_state"), "h0="),
    **dict.fromkeys(("lengths", "seq_lengths", "sequence_lens", "seq_lens"), "sequence_lengths="),
    **dict.fromkeys(("weight_ih", "w_ih", "kernel"), "w="),
    **dict.fromkeys(("weight_hh", "w_hh", "recurrent_kernel"), "r="),
    **dict.fromkeys(("bias", "bias_ih", "bias_hh"), "b=, all biases of a direction in one row"),
    **dict.fromkeys(("batch_first", "layout"), "left out: x is (T, N, I), a transposed view of any strides"),
    **dict.fromkeys(("hidden_size", "input_size"), "left out: the sizes of w and r say it"),
    "bidirectional": "direction='bidirectional'",
    "go_backwards": "direction='reverse'",
    "reset_after": "linear_before_reset=",
    "num_layers": "left out: cudml.gru_stack takes layers",
}
GRU_STACK: Mapping[str, str] = {
    **{word: meaning for word, meaning in GRU.items() if meaning not in ("w=", "r=")},
    **dict.fromkeys(("w", "r", "b", "weight_ih", "weight_hh", "w_ih", "w_hh"), "layers=, a (w, r, b) each"),
    **dict.fromkeys(
        ("bias", "bias_ih", "bias_hh"), "layers=, with all biases of a direction in one row of b"
    ),
    "num_layers": "left out: the length of layers says it",
    "dropout": "left out: as after training, nothing is dropped",
}


def hiding_words(function: Function) -> Function:
    """A decorator for a function whose last parameter is other libraries' words, for `no_argument`.

    The shown signature has neither that parameter nor defaults of positional parameters: these defaults exist
    for calls that give the arguments by name, which is an error. A wrapper would add 0.2 us to each call.
    """
    shown = [
        one.replace(default=Parameter.empty) if one.kind is Parameter.POSITIONAL_ONLY else one
        for one in signature(function).parameters.values()
        if one.kind is not Parameter.VAR_KEYWORD
    ]
    function.__signature__ = Signature(shown)  # type: ignore[attr-defined]
    return function


def naming_words(meanings: Mapping[str, str]) -> Callable[[Function], Function]:
    """A decorator: a call with other libraries' arguments raises an error that names cudml's own."""

    def decorated(function: Function) -> Function:
        @wraps(function)
        def called(*arguments: Any, **named: Any) -> Any:
            try:
                return function(*arguments, **named)
            except TypeError as error:
                if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                    raise  # from within the function
                found = _misplaced(function, arguments, named, meanings)
                if found is None:
                    raise
            raise found

        return called  # type: ignore[return-value]

    return decorated


def no_argument(function: Callable[..., Any], name: str, meanings: Mapping[str, str]) -> TypeError:
    """The error about a name that is no argument of a function, or one without a name."""
    parameters = signature(function).parameters
    if name in parameters:
        expected = f"argument {[*parameters].index(name) + 1}, without a name"
        return TypeError(wrong_argument(function.__name__, name, "given by name", expected))
    known = [word.name for word in parameters.values() if word.kind in _NAMED]
    expected = meanings.get(name, f"one of {', '.join(known)}")
    return TypeError(wrong_argument(function.__name__, name, "no argument", expected))


#: The places of an argument's name in error texts.
_PLACES = (
    r"(?<=: ){0}(?= is | must )|(?<=overlapping ){0}(?=,)|"
    r"(?<=shape of ){0}(?= with)|(?<=where ){0}(?= is)"
)


def renamed(error: Exception, name: str, theirs: str) -> Exception:
    """The error of an array function, with an adapter's own name for the argument."""
    return type(error)(re.sub(_PLACES.format(name), theirs, str(error)))


#: The kinds of parameters that may be given by name.
_NAMED = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


def _misplaced(
    function: Callable[..., Any],
    arguments: Sequence[Any],
    named: Mapping[str, Any],
    meanings: Mapping[str, str],
) -> TypeError | None:
    """The error about arguments that are unknown, or not given as they must be; None if some are missing."""
    parameters = signature(function).parameters
    by_name = [name for name, one in parameters.items() if one.kind is Parameter.KEYWORD_ONLY]
    for name in named:
        if name not in parameters or parameters[name].kind is Parameter.POSITIONAL_ONLY:
            return no_argument(function, name, meanings)
    count = len(parameters) - len(by_name)
    if len(arguments) > count:
        expected = f"given by its name: {', '.join(by_name)}"
        got = repr(arguments[count])
        return TypeError(wrong_argument(function.__name__, f"argument {count + 1}", got, expected))
    return None
