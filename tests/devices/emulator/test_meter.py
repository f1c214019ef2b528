"""The meter: exact traffic of kernels whose traffic can be counted by hand."""

from pathlib import Path

import numpy as np
import pytest

import cudml
from cudml.devices import emulator
from cudml.devices.emulator.meter import Report
from tests.devices.emulator.support import EVERY_ORDER, launch
from tests.support.params import params_of

TEXT = """
#include "common/intrinsics.cuh"
struct Params { Int32 stride, offset; };
struct Storage { UInt32 words[1024]; };

template <typename T>
__global__ void copy(const T* x, T* out, Params params) {
  const Int32 i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = x[static_cast<Int64>(i) * params.stride + params.offset];
}

__global__ void copy_16(const uint4* x, uint4* out, Params params) {
  const Int32 i = blockIdx.x * blockDim.x + threadIdx.x;
  store_16_bytes(out + i, load_16_bytes(x + i));
}

__global__ void shared_words(const UInt32* x, UInt32* out, Params params) {
  SHARED_STORAGE(Storage, shared);
  for (int j = threadIdx.x; j < 1024; j += 32) shared.words[j] = x[j];
  __syncthreads();  // all words are written
  out[threadIdx.x] = shared.words[threadIdx.x * params.stride % 1024];
  __syncthreads();  // all words are read
  __syncwarp();
}

__global__ void count(const UInt32* x, UInt32* out, Params params) {
  atomicAdd(out + threadIdx.x % params.stride, x[threadIdx.x]);
}

// Half of each warp goes round the loop twice as often.
__global__ void uneven(const UInt32* x, UInt32* out, Params params) {
  UInt32 sum = 0;
  for (UInt32 round = 0; round < (threadIdx.x < 16 ? 4 : 2); round++) sum += x[round * 32 + threadIdx.x];
  out[threadIdx.x] = sum;
}
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("meter") / "meter.cu"
    path.write_text(TEXT)
    return path


def aligned(num_bytes: int) -> np.ndarray:
    """Zeros that begin where a device allocation may: at a multiple of 256."""
    memory = np.zeros(num_bytes + 256, np.uint8)
    start = -memory.ctypes.data % 256
    return memory[start : start + num_bytes]


def measure(source: Path, function: str, num_bytes: tuple[int, int], **options: object) -> Report:
    stride, offset = options.pop("stride", 1), options.pop("offset", 0)
    params = params_of(stride=("Int32", stride), offset=("Int32", offset))  # type: ignore[arg-type]
    buffers = {"x": aligned(num_bytes[0]), "out": aligned(num_bytes[1])}
    with cudml.emulator_report() as report:
        launch(source, function, buffers, params, **options)  # type: ignore[arg-type]
    return report


@pytest.mark.parametrize(("order", "seed"), EVERY_ORDER)
@pytest.mark.parametrize(
    ("cpp", "size", "stride", "offset", "sectors"),
    [
        ("UInt8", 1, 1, 0, 1),
        ("UInt16", 2, 1, 0, 2),
        ("UInt32", 4, 1, 0, 4),
        ("UInt32", 4, 1, 1, 5),  # not at the start of a sector
        ("UInt32", 4, 2, 0, 8),
        ("UInt32", 4, 8, 0, 32),
        ("UInt32", 4, 100, 0, 32),
        ("UInt32", 4, 0, 0, 1),
        ("UInt64", 8, 1, 0, 8),
    ],
)
def test_bytes_and_sectors_of_a_copy(
    source: Path, order: str, seed: int, cpp: str, size: int, stride: int, offset: int, sectors: int
) -> None:
    """3 blocks of 2 warps; `sectors` are those of one warp's read."""
    bytes_read = ((3 * 64 - 1) * stride + offset + 1) * size
    with emulator.schedule(order, seed):
        options = {"template": (cpp,), "grid": 3, "block": 64, "stride": stride, "offset": offset}
        report = measure(source, "copy", (bytes_read, 3 * 64 * size), **options)
    x, out = report.total("x"), report.total("out")
    assert (x.bytes_read, x.bytes_written) == (3 * 64 * size, 0)
    assert (x.requests_read, x.requests_written) == (6, 0)
    assert (x.sectors_read, x.sectors_per_request) == (6 * sectors, sectors)
    assert (out.bytes_read, out.bytes_written) == (0, 3 * 64 * size)
    assert (out.requests_written, out.sectors_written) == (6, 6 * size)
    assert (x.atomics, x.bank_conflicts) == (0, 0)


def test_16_byte_accesses_are_one_request(source: Path) -> None:
    report = measure(source, "copy_16", (64 * 16, 64 * 16), block=64)
    x, out = report.total("x"), report.total("out")
    assert (x.bytes_read, x.requests_read, x.sectors_read) == (64 * 16, 2, 2 * 16)
    assert (out.bytes_written, out.requests_written, out.sectors_written) == (64 * 16, 2, 2 * 16)


@pytest.mark.parametrize(("order", "seed"), EVERY_ORDER)
@pytest.mark.parametrize(
    ("stride", "conflicts"), [(1, 0), (0, 0), (2, 1), (3, 0), (4, 3), (16, 15), (32, 31), (33, 0)]
)
def test_bank_conflicts(source: Path, order: str, seed: int, stride: int, conflicts: int) -> None:
    with emulator.schedule(order, seed):
        report = measure(source, "shared_words", (4096, 128), stride=stride, shared_bytes=4096)
    shared = report.launches[0].shared
    assert shared.bank_conflicts == conflicts
    assert (shared.bytes_written, shared.requests_written) == (4096, 32)
    assert (shared.bytes_read, shared.requests_read) == (128, 1)
    assert (shared.sectors_read, shared.sectors_written) == (0, 0)
    assert (report.launches[0].block_barriers, report.launches[0].warp_collectives) == (2, 1)


def test_atomics_are_counted_by_thread(source: Path) -> None:
    report = measure(source, "count", (256, 64), stride=7, block=64)
    out = report.total("out")
    assert (out.atomics, out.bytes_read, out.bytes_written) == (64, 0, 0)
    assert report.total("x").bytes_read == 256


def test_lanes_that_go_round_more_often(source: Path) -> None:
    x = measure(source, "uneven", (512, 128)).total("x")
    assert (x.requests_read, x.bytes_read) == (4, 4 * (2 * 32 + 2 * 16))
    assert x.sectors_read == 2 * 4 + 2 * 2


def test_reports_add_up_and_say_what_ran(source: Path) -> None:
    params = params_of(stride=("Int32", 1), offset=("Int32", 0))
    buffers = {"x": aligned(128), "out": aligned(128)}
    with cudml.emulator_report() as report:
        for _ in range(3):
            launch(source, "copy", buffers, params, template=("UInt32",))
        with cudml.emulator_report() as inner:
            launch(source, "copy", buffers, params, template=("UInt32",))
    assert (len(report.launches), len(inner.launches)) == (3, 1)
    assert report.total("x").bytes_read == 3 * 128
    with pytest.raises(KeyError, match="no launch used a buffer 'y'"):
        report.total("y")
    text = str(inner)
    assert "copy<UInt32>" in text
    assert "x: read 128 bytes in 4 sectors, wrote 0 in 0, 0 atomics, 4.00 sectors a request" in text


def test_the_example_of_the_docstring() -> None:
    with cudml.emulator_report() as report:
        cudml.slice(np.arange(1000, dtype=np.float32), [100], [801])
    assert report.total("output_tensor").bytes_written == 3204
