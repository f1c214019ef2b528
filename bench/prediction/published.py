"""Published times of other libraries' kernels beside this model's, by the GPU's datasheet, nothing fitted.

`python -m bench predict --published` runs the kernels, prints both and writes bench/results/published.csv.
"""

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from bench import native
from bench.cases import WrongResultError
from bench.prediction.native_peers import PEERS, Recorder, loaded, version_of
from bench.prediction.table import TOLERANCE, read_rows, text_of
from bench.results import RESULTS
from bench.sources import Source
from proof.runtime import library as stand_in
from proof.sass.rates import H100_PCIE, Gpu

TABLE = RESULTS / "published.csv"
_CCCL = "https://github.com/NVIDIA/cccl/issues/5673, comment of 2026-04-07, reference time"
GPUS = {gpu.name: gpu for gpu in (H100_PCIE,)}


@dataclass(frozen=True)
class Row:
    """A published time; the predicted one is 0 if `note` says why there is none.

    The case is a row of int8 keys with int8 values, and how many of the largest are chosen.
    """

    peer: str
    version: str
    source: str
    gpu: str
    length: int
    k: int
    published_us: float
    predicted_us: float = 0.0
    launches: int = 0
    bound: str = ""
    note: str = ""

    @property
    def error(self) -> float:
        """The error of the predicted time; below zero, the time is too short."""
        return self.predicted_us / self.published_us - 1

    def __str__(self) -> str:
        case = f"{self.peer}, {self.length} int8 pairs, k {self.k}, {self.gpu}"
        told = (
            f"{self.predicted_us:>9.1f} us {self.error:>+7.1%}  {self.bound}"
            if self.predicted_us
            else self.note
        )
        return f"{case:<72}{self.published_us:>9.1f} us  {told}"


#: Keys are uniform: CUB's benchmark calls it an entropy of 1.
ROWS = tuple(
    Row("cub.DeviceTopK", "", _CCCL, H100_PCIE.name, length, 8, published_us)
    for length, published_us in ((1 << 16, 14.304), (1 << 20, 17.774), (1 << 24, 79.137), (1 << 28, 1091.0))
)


def predicted() -> Iterator[Row]:
    """All rows with their predicted times, or why there is none."""
    name, package = PEERS["cub.DeviceTopK"]
    for row in ROWS:
        row = replace(row, version=version_of(package))
        if why := native.unavailable(native.LIBRARIES[name]) or stand_in.unavailable():
            yield replace(row, note=f"not executed: {why}")
        else:
            yield _run(row, GPUS[row.gpu], loaded(name))


def _run(row: Row, gpu: Gpu, library: ctypes.CDLL) -> Row:
    recorder = Recorder(gpu)
    runtime, source = recorder.runtime, Source(np, 1)
    keys, values = (runtime.array(source.bits((row.length,), np.dtype("int8"))) for _ in range(2))
    chosen = [runtime.empty(row.k, "int8") for _ in range(2)]
    num_bytes, function = ctypes.c_size_t(0), library.cub_top_k_int8_pairs
    pointer = ctypes.c_void_p
    function.argtypes = (
        pointer,
        ctypes.POINTER(ctypes.c_size_t),
        *[pointer] * 4,
        *[ctypes.c_int] * 3,
        pointer,
    )
    places = [array.ctypes.data for array in (keys, values, *chosen)]

    def call(temporary: int | None) -> None:
        if function(temporary, ctypes.byref(num_bytes), *places, row.length, row.k, 1, None):
            raise RuntimeError(f"cub::DeviceTopK failed: {runtime.error()}")

    call(None)
    temporary = runtime.empty(max(num_bytes.value, 1), "uint8")
    recorder.begin()
    call(temporary.ctypes.data)
    check(keys, values, *chosen)
    total = recorder.total()
    return replace(row, predicted_us=round(total.time_us, 2), launches=total.launches, bound=total.bound)


def check(keys: np.ndarray, values: np.ndarray, chosen_keys: np.ndarray, chosen: np.ndarray) -> None:
    """Raise unless the chosen keys are the largest, and each chosen pair is in the row as often as chosen."""
    k = chosen_keys.size
    largest = np.sort(np.partition(keys, keys.size - k)[-k:])
    if not np.array_equal(np.sort(chosen_keys), largest):
        raise WrongResultError(f"keys are {np.sort(chosen_keys)}, the largest are {largest}")
    for key, value in zip(chosen_keys, chosen, strict=True):
        there = np.count_nonzero((keys == key) & (values == value))
        if there < np.count_nonzero((chosen_keys == key) & (chosen == value)):
            raise WrongResultError(f"the pair ({key}, {value}) is in the row {there} times")


def differences(recorded: list[Row], rows: list[Row]) -> list[str]:
    """Rows whose times changed, or that are not in the table."""
    known = {(row.gpu, row.length, row.k): row for row in recorded}
    found = []
    for row in rows:
        old = known.get((row.gpu, row.length, row.k))
        if old is None or (row.note, row.version) != (old.note, old.version):
            found.append(f"{row}: not as recorded; run `python -m bench predict --published`")
        elif abs(row.predicted_us - old.predicted_us) > TOLERANCE * old.predicted_us:
            found.append(f"{row}: recorded {old.predicted_us} us")
    return found


def read() -> list[Row]:
    """The rows of the table."""
    return read_rows(Row, TABLE)[1]


def table_text(rows: list[Row]) -> str:
    """The file's text."""
    return text_of(Row, rows)


def main(check_only: bool) -> int:
    """Predict all rows, and write or compare."""
    rows = []
    for row in predicted():
        rows.append(row)
        print(row, flush=True)
    if not check_only:
        TABLE.write_text(table_text(rows))
        return 0
    found = differences(read(), rows)
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0
