"""Compile a descriptor into an operator and dispatch it: check, plan, load, bind, launch."""

from collections.abc import Callable, Hashable, Mapping
from operator import itemgetter
from typing import Any
from weakref import ref

from cudml.bindings import Member, binding_problems, owned_problems, scratch_problems
from cudml.devices import Array, Device, Program, get_device
from cudml.enums import ExecutionFlags, FeatureLevel, TensorFlags
from cudml.errors import BindingError, DeviceError
from cudml.executable import MAX_GOOD, Recent, load
from cudml.operators import OPERATORS, Descriptor, operator_type_of
from cudml.plans import WORKSPACE_ALIGNMENT, Plan, round_up


def compile_operator(
    desc: Descriptor,
    *,
    device: "str | Device | None" = None,
    feature_level: FeatureLevel = FeatureLevel.LEVEL_6_4,
    flags: ExecutionFlags = ExecutionFlags.NONE,
) -> "CompiledOperator":
    """Check a descriptor, plan it for a device and build its kernels.

    Plans and kernels are cached, so compiling an equal descriptor again only checks it. Thread-safe.

    Parameters
    ----------
    desc : TopK1Desc, TopKDesc, GruDesc, SliceDesc, Slice1Desc or ReverseSubsequencesDesc
        The operator and its tensors.
    device : str or Device, optional
        "cuda", "cuda:1" or "cpu"; None means the current GPU if there is one, else the CPU emulator.
    feature_level : FeatureLevel
        The level whose rules the descriptor must follow.
    flags : ExecutionFlags
        ALLOW_HALF_PRECISION_COMPUTATION lets a GRU of float32 multiply as `allow_tf32` of `cudml.gru` does.
        No other flag and no other operator has an effect.

    Returns
    -------
    CompiledOperator
        A new object each time, so that each has its own persistent resource.

    Raises
    ------
    DescriptorError
        The descriptor breaks rules; the error lists all of them.
    TypeError
        `desc`, `device`, `feature_level` or `flags` is of another type.
    ValueError
        Unknown device name.
    DeviceError, CompilerError
        The device cannot be used or the kernels cannot be built; the message says what is missing.

    Examples
    --------
    >>> import numpy as np, cudml
    >>> tensor = cudml.TensorDesc(cudml.DataType.FLOAT32, (1, 1, 1, 4))
    >>> lengths = cudml.TensorDesc(cudml.DataType.UINT32, (1, 1, 1, 1))
    >>> desc = cudml.ReverseSubsequencesDesc(tensor, lengths, tensor, axis=3)
    >>> operator = cudml.compile_operator(desc, device="cpu")
    >>> y = np.empty(4, np.float32)
    >>> operator.dispatch(
    ...     input_tensor=np.array([1, 2, 3, 4], np.float32),
    ...     sequence_lengths_tensor=np.array([3], np.uint32),
    ...     output_tensor=y,
    ... )
    >>> y.tolist()
    [3.0, 2.0, 1.0, 4.0]

    Notes
    -----
    Source: IDMLDevice::CreateOperator and CompileOperator of DirectML's documentation.
    """
    kind = operator_type_of("compile_operator", desc)
    if not isinstance(feature_level, FeatureLevel):
        raise TypeError(f"compile_operator: feature_level is {feature_level!r}, must be a cudml.FeatureLevel")
    if not isinstance(flags, ExecutionFlags):
        raise TypeError(f"compile_operator: flags is {flags!r}, must be cudml.ExecutionFlags")
    if not (device is None or isinstance(device, str) or hasattr(device, "limits")):
        expected = "'cpu', 'cuda', 'cuda:N' or a device of cudml"
        raise TypeError(f"compile_operator: device is {device!r}, must be {expected}")
    # Checked each time, because the cache treats 1.0 and True as 1 but the rules do not.
    OPERATORS[kind].check(desc, feature_level)
    target = _device_named(device) if device is None or isinstance(device, str) else device
    plan, run = load(OPERATORS[kind].plan, desc, target, OPERATORS[kind].plan_options(flags))
    members = tuple(
        Member(name, getattr(desc, name), is_output=name in plan.outputs) for name in plan.operands
    )
    return CompiledOperator(kind.name, target, plan, run, members)


def _device_named(name: str | None) -> Device:
    """`get_device`, whose errors name the function and the argument."""
    try:
        return get_device(name)
    except ValueError as error:
        raise ValueError(f"compile_operator: {error}") from None
    except DeviceError as error:
        given = "" if name is None else f"device is {name!r}: "
        raise DeviceError(f"compile_operator: {given}{error}") from None


def _no_array() -> None:
    """A reference to nothing."""


class CompiledOperator:
    """An operator ready to run on one device, made by `compile_operator`.

    Attributes
    ----------
    plan : Plan
        The kernels it launches; `print(operator.plan)` shows them.
    temporary_resource_size : int
        Bytes of scratch that one dispatch uses. Dispatches that may run at the same time need their own.
    persistent_resource_size : int
        Bytes that `initialize` fills with the inputs flagged `OWNED_BY_DML`.
    """

    def __init__(
        self, name: str, device: Device, plan: Plan, run: Program, members: tuple[Member, ...]
    ) -> None:
        self.name = name
        self.device = device
        self.plan = plan
        self.temporary_resource_size = plan.temporary_bytes
        self._owned = tuple(m for m in members if m.tensor.flags & TensorFlags.OWNED_BY_DML)
        self._bound = tuple(m for m in members if m not in self._owned)
        self._names = tuple(m.name for m in self._bound)
        self._in_order: Callable[[Mapping[str, Any]], tuple[Any, ...]] = itemgetter(*plan.operands)
        self._run = run
        # Addresses and layouts of arrays that were checked.
        self._good: Recent[Hashable, bool] = Recent(MAX_GOOD)
        # The arrays that were checked last, by identity; they are not kept alive.
        self._last: dict[str, Callable[[], Any]] = {}
        self._last_scratch: Callable[[], Any] = _no_array
        self._persistent_resource: Array | None = None
        self._persistent: dict[str, Array] | None = None
        starts = [0]
        for member in self._owned:
            starts.append(round_up(starts[-1] + member.tensor.minimum_bytes, WORKSPACE_ALIGNMENT))
        self._persistent_starts = starts[:-1]
        self.persistent_resource_size = starts[-1]

    def __repr__(self) -> str:
        return f"<CompiledOperator {self.name} on {self.device.name}: {', '.join(self.plan.operands)}>"

    def initialize(
        self, *, persistent_resource: Array | None = None, stream: Any = None, **owned: Array
    ) -> None:
        """Copy the inputs flagged `OWNED_BY_DML` into the persistent resource.

        Parameters
        ----------
        **owned : array
            The owned inputs by member name; they may change or be freed afterwards.
        persistent_resource : array, optional
            C-contiguous, of at least `persistent_resource_size` bytes, not overlapping an owned input, and
            not modified as long as the operator is used; None allocates one.
        stream : optional
            As in `dispatch`; None means the current stream.

        Raises
        ------
        BindingError
            The bindings have problems; the error lists all of them. Nothing was copied.
        TypeError, ValueError
            As in `dispatch`. Nothing was copied.
        """
        self._check_stream(stream)
        resources = [("PersistentResource", persistent_resource, True)]
        found = binding_problems(self.device, self._owned, owned, resources)
        size = self.persistent_resource_size
        if persistent_resource is not None:
            found += scratch_problems(self.device, "PersistentResource", persistent_resource, size)
        if found:
            raise BindingError(self.name, found)
        resource = persistent_resource
        if resource is None:
            resource = self.device.empty((size,), "uint8", stream)
        resource = resource.reshape(-1).view("uint8")[:size]
        pieces = {}
        for member, start in zip(self._owned, self._persistent_starts, strict=True):
            pieces[member.name] = resource[start : start + member.tensor.minimum_bytes]
            self.device.copy_bytes(owned[member.name], pieces[member.name], member.tensor.span_bytes, stream)
        self._persistent = pieces
        self._persistent_resource = resource
        # Arrays that were checked against the former resource may overlap this one.
        self._good.clear()
        self._last = {}

    def dispatch(
        self, *, temporary_resource: Array | None = None, stream: Any = None, **bindings: Array
    ) -> None:
        """Compute the outputs from the inputs, in the order of a stream.

        An array may be bound if it is on the device and has the descriptor's data type (bool counts as
        UINT8). It must also have the descriptor's sizes and strides (leading sizes of 1 may be left out), or
        be C-contiguous with at least as many bytes as the descriptor addresses, in any shape.

        A call with arrays like those of an earlier call checks nothing and synchronises nothing. It allocates
        only scratch memory, if `temporary_resource` is None and `temporary_resource_size` is not 0. It can be
        captured in a CUDA graph after a first call. Scratch that a captured call allocates lives as long as
        the outputs, because replays continue to write to it, and later captures of the same outputs share it.
        The caller must keep a `temporary_resource` alive like the bound arrays.

        Parameters
        ----------
        **bindings : array
            Every tensor of the descriptor by member name (`input_tensor=x`), except absent optional ones and
            those given to `initialize`.
        temporary_resource : array, optional
            Scratch: C-contiguous, of at least `temporary_resource_size` bytes.
        stream : optional
            A CuPy stream, an object with `__cuda_stream__`, or an integer handle, on the operator's GPU. None
            means the current stream, and is the only choice on a CPU.

        Raises
        ------
        BindingError
            The bindings have problems; the error lists all of them. Nothing was launched, and no output was
            changed.
        TypeError
            `stream` is not a stream, or the operator runs on a CPU. Nothing was launched.
        ValueError
            `stream` is known to belong to another GPU. Nothing was launched.

        Notes
        -----
        Source: IDMLBindingTable and IDMLCommandRecorder::RecordDispatch of DirectML's documentation.
        """
        last = self._last
        for name, array in bindings.items():
            if array is None or array is not last.get(name, _no_array)():
                self._ensure_good(bindings, temporary_resource)
                break
        if temporary_resource is not None and temporary_resource is not self._last_scratch():
            self._ensure_good(bindings, temporary_resource)
        try:
            operands = self._in_order({**bindings, **self._persistent} if self._persistent else bindings)
        except KeyError:
            self._check(bindings, temporary_resource)  # raises, because one is missing
            raise
        try:
            self._run(operands, temporary_resource, stream)
        except (TypeError, ValueError):
            self._check_stream(stream)
            raise

    def _ensure_good(self, bindings: Mapping[str, Any], temporary_resource: Any) -> None:
        """Check the arrays unless the same addresses and layouts passed before; raise `BindingError`."""
        place_of = self.device.address_and_layout
        try:
            described = [place_of(bindings[name]) for name in self._names]
            if temporary_resource is not None:
                described.append(place_of(temporary_resource))
        except (KeyError, TypeError):
            self._check(bindings, temporary_resource)
            return
        key = tuple(described)
        if key not in self._good or len(bindings) != len(self._names):
            self._check(bindings, temporary_resource)
            self._good[key] = True
        if self.device.has_fixed_arrays:
            self._last = {name: ref(array) for name, array in bindings.items()}
            self._last_scratch = _no_array if temporary_resource is None else ref(temporary_resource)

    def _check_stream(self, stream: Any) -> None:
        """Raise the error about a stream, with the operator's name, unless it can be used."""
        try:
            self.device.on_stream(stream)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{self.name}: {error}") from None

    def _check(self, bindings: Mapping[str, Any], temporary_resource: Any) -> None:
        """Raise `BindingError` with all problems, if there are any."""
        found = owned_problems(self._owned, bindings, is_initialized=self._persistent is not None)
        others = {
            name: array for name, array in bindings.items() if name not in {m.name for m in self._owned}
        }
        resources = [
            ("TemporaryResource", temporary_resource, True),
            ("PersistentResource", self._persistent_resource, False),
        ]
        found += binding_problems(self.device, self._bound, others, resources)
        if temporary_resource is not None:
            size = self.temporary_resource_size
            found += scratch_problems(self.device, "TemporaryResource", temporary_resource, size)
        if found:
            raise BindingError(self.name, found)
