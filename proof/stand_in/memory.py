"""Memory of the stand-in's GPUs, which the host cannot touch, and pinned memory of the host.

Device memory is one file in memory, mapped twice: at the addresses that programs see it is protected, so that
a host access ends the process as on a GPU; the stand-in works on the other mapping. Addresses are never
reused, and a protected page is behind every allocation.
"""

import bisect
import ctypes
import mmap
import os
from dataclasses import dataclass
from enum import Enum

import numpy as np

from proof.sass.launch import Buffer
from proof.stand_in.errors import Code, CudaFailure

#: Addresses of all GPUs together.
_ARENA_BYTES = 1 << 40
_PAGE = mmap.PAGESIZE

#: The content of new memory: as a float it is small and negative, as an integer no plausible size.
_POISON = 0xA5
#: Larger allocations keep zeros behind this, so that they take no memory of the machine.
_MAX_POISONED = 64 << 20

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_PROTECT_NONE, _MAP_NORESERVE = 0, 0x4000


class Kind(Enum):
    """Who may use memory: one GPU, a GPU and the host, or the host and every GPU."""

    DEVICE = "device"
    MANAGED = "managed"
    PINNED = "pinned"


@dataclass(frozen=True, eq=False)
class Allocation:
    """Memory by its address, the GPU that it belongs to, and the bytes that the stand-in works on."""

    address: int
    num_bytes: int
    device: int
    kind: Kind
    buffer: Buffer

    @property
    def bytes(self) -> np.ndarray:
        return self.buffer.array


def _mapped(protection: int, flags: int, file: int) -> int:
    """The start of a mapping as large as the arena, which takes no memory before it is written."""
    found = _libc.mmap(None, _ARENA_BYTES, protection, flags | _MAP_NORESERVE, file, 0)
    if found in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), "no addresses for the stand-in's memory")
    return int(found)


def _bytes_at(address: int) -> np.ndarray:
    return np.frombuffer((ctypes.c_uint8 * _ARENA_BYTES).from_address(address), np.uint8)


class Memory:
    """All allocations of a process; each GPU has `capacity` bytes."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._file = os.memfd_create("stand-in")
        os.ftruncate(self._file, _ARENA_BYTES)
        both = mmap.PROT_READ | mmap.PROT_WRITE
        self._seen = _mapped(_PROTECT_NONE, mmap.MAP_SHARED, self._file)
        self._own = _mapped(both, mmap.MAP_SHARED, self._file)
        self._arena = _bytes_at(self._own)
        # Counts of stores, for which the machine asks; nobody reads them.
        self._stores = _bytes_at(_mapped(both, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1))
        self._next = _PAGE
        self._used: dict[int, int] = {}
        self._addresses: list[int] = []
        self._allocations: dict[int, Allocation] = {}

    def free_bytes(self, device: int) -> int:
        """Bytes of a GPU that can still be allocated."""
        return self.capacity - self._used.get(device, 0)

    def allocate(self, num_bytes: int, device: int, kind: Kind = Kind.DEVICE) -> Allocation:
        """New memory full of a pattern; raises CudaFailure where there is not enough."""
        if kind is not Kind.PINNED:
            if num_bytes > self.free_bytes(device):
                raise CudaFailure(
                    Code.MEMORY_ALLOCATION, f"{num_bytes} bytes, {self.free_bytes(device)} are free"
                )
            self._used[device] = self._used.get(device, 0) + num_bytes
        start = self._next
        self._next += -(-max(num_bytes, 1) // _PAGE) * _PAGE + _PAGE
        array = self._arena[start : start + num_bytes]
        array[:_MAX_POISONED] = _POISON
        buffer = Buffer(array, address=self._seen + start, written=self._stores[start : start + num_bytes])
        made = Allocation(self._seen + start, num_bytes, device, kind, buffer)
        if kind is not Kind.DEVICE:
            self._protect(made, mmap.PROT_READ | mmap.PROT_WRITE)
        bisect.insort(self._addresses, made.address)
        self._allocations[made.address] = made
        return made

    def release(self, address: int) -> None:
        """Return memory by its first address; its bytes are gone."""
        found = self.at(address)
        self._addresses.remove(address)
        del self._allocations[address]
        if found.kind is not Kind.PINNED:
            self._used[found.device] -= found.num_bytes
        if found.kind is not Kind.DEVICE:
            self._protect(found, _PROTECT_NONE)
        start = address - self._seen
        size = -(-max(found.num_bytes, 1) // _PAGE) * _PAGE
        whole = ctypes.c_void_p(self._own + start)
        _libc.madvise(whole, ctypes.c_size_t(size), mmap.MADV_REMOVE)

    def at(self, address: int) -> Allocation:
        """The allocation with a first address; raises CudaFailure without one."""
        found = self._allocations.get(address)
        if found is None:
            raise CudaFailure(Code.INVALID_VALUE, f"{address:#x} is not the address of an allocation")
        return found

    def find(self, address: int) -> Allocation | None:
        """The allocation that an address lies in."""
        place = bisect.bisect_right(self._addresses, address) - 1
        if place < 0:
            return None
        found = self._allocations[self._addresses[place]]
        return found if address < found.address + max(found.num_bytes, 1) else None

    def is_guarded(self, address: int) -> bool:
        """Whether an address lies in the arena of allocations."""
        return self._seen <= address < self._seen + _ARENA_BYTES

    def view(self, address: int, num_bytes: int) -> np.ndarray:
        """Bytes of an allocation, or of the host's other memory.

        Raises CudaFailure if they leave an allocation, or lie where none is.
        """
        found = self.find(address)
        if found is not None:
            offset = address - found.address
            if offset + num_bytes > found.num_bytes:
                left = found.num_bytes - offset
                raise CudaFailure(
                    Code.INVALID_VALUE, f"{num_bytes} bytes at {address:#x}, where {left} are allocated"
                )
            return found.bytes[offset : offset + num_bytes]
        if self.is_guarded(address):
            raise CudaFailure(Code.INVALID_VALUE, f"{address:#x} is not allocated")
        return np.frombuffer((ctypes.c_uint8 * num_bytes).from_address(address), np.uint8)

    def of_devices(self, devices: set[int]) -> list[Allocation]:
        """The allocations for kernels that may use the memory of these GPUs, pinned memory among them."""
        return [a for a in self._allocations.values() if a.kind is Kind.PINNED or a.device in devices]

    def _protect(self, allocation: Allocation, protection: int) -> None:
        if _libc.mprotect(allocation.address, max(allocation.num_bytes, 1), protection):
            raise OSError(ctypes.get_errno(), "the stand-in's memory cannot be protected")
