"""CUDA's driver as CuPy's binding calls it; functions have the binding's names and arguments."""

from typing import Any

from proof.stand_in import kernels
from proof.stand_in.errors import Code, CudaFailure, UnknownCallError
from proof.stand_in.kernels import Function, Module, Request, packed_arguments
from proof.stand_in.runtime import Runtime
from proof.stand_in.streams import CaptureMode, Handles

_FIRST_MODULE, _FIRST_FUNCTION = 0x3000_0000, 0x4000_0000


class Driver:
    """Modules and launches on the runtime's GPUs."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._modules = Handles(_FIRST_MODULE, "module")
        self._functions = Handles(_FIRST_FUNCTION, "function")

    def moduleLoadData(self, image: bytes) -> int:  # noqa: N802
        self._runtime.streams.forbid_during_capture("the load of a module")
        # CuPy treats the last byte of a cubin, which is 0, as the end of a text.
        module = kernels.loaded(image + b"\0", self._runtime.device)
        handle = self._modules.new()
        self._modules.things[handle] = module
        return handle

    def moduleUnload(self, module: int) -> None:  # noqa: N802
        found = self._modules.destroy(module)
        assert isinstance(found, Module)
        self._runtime.order.complete_all(found.device)
        for function in found.functions.values():
            function.is_loaded = False

    def moduleGetFunction(self, module: int, name: str | bytes) -> int:  # noqa: N802
        found = self._modules.find(module)
        assert isinstance(found, Module)
        function = found.function(name if isinstance(name, str) else name.decode())
        handle = self._functions.new()
        self._functions.things[handle] = function
        return handle

    def _function(self, handle: int) -> Function:
        found = self._functions.find(handle)
        assert isinstance(found, Function)
        if not found.is_loaded:
            raise CudaFailure(Code.INVALID_HANDLE, f"the module of {found.name} was unloaded")
        return found

    def funcGetAttribute(self, attribute: int, function: int) -> int:  # noqa: N802
        return self._function(function).attribute(attribute)

    def funcSetAttribute(self, function: int, attribute: int, value: int) -> None:  # noqa: N802
        self._function(function).set_attribute(attribute, value)

    def occupancyMaxActiveBlocksPerMultiprocessor(  # noqa: N802
        self, function: int, block: int, shared_bytes: int
    ) -> int:
        most = self._runtime.settings.cooperative_blocks
        return self._function(function).cooperative_blocks(block, shared_bytes, most)

    def occupancyMaxActiveClusters(  # noqa: N802
        self, function: int, block: int, shared_bytes: int, cluster: tuple[int, ...] | None
    ) -> int:
        """Not in CuPy's binding; the cluster of a launch, if it names one, must be the kernel's."""
        found = self._function(function)
        if cluster not in (None, found.facts.cluster):
            raise CudaFailure(
                Code.INVALID_CLUSTER_SIZE, f"clusters of {cluster}, the kernel has {found.facts.cluster}"
            )
        return found.active_clusters(block, shared_bytes, self._runtime.settings.gpcs)

    def launchKernel(self, function: int, *given: Any) -> None:  # noqa: N802
        *shape, stream, parameters, extra = given
        if extra:
            raise UnknownCallError("cuLaunchKernel", "with arguments in `extra`")
        self._launch(function, shape, stream, parameters, is_cooperative=False)

    def launchCooperativeKernel(self, function: int, *given: Any) -> None:  # noqa: N802
        *shape, stream, parameters = given
        self._launch(function, shape, stream, parameters, is_cooperative=True)

    def _launch(
        self, handle: int, shape: list[int], stream: int, parameters: int, *, is_cooperative: bool
    ) -> None:
        function = self._function(handle)
        grid, block, shared_bytes = tuple(shape[:3]), tuple(shape[3:6]), shape[6]
        arguments = packed_arguments(function, parameters)
        request = Request(function, grid, block, shared_bytes, arguments, is_cooperative)
        self._runtime.launch(request, stream)

    def threadExchangeStreamCaptureMode(self, mode: int) -> int:  # noqa: N802
        """Not in CuPy's binding."""
        return self._runtime.streams.exchange_mode(CaptureMode(mode))
