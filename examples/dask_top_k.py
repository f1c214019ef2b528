"""The best of an array that is larger than a machine should hold at once, by two worker processes.

pip install 'cudml[dask]'     # in a checkout: pip install '.[dask]'
python examples/dask_top_k.py
"""

import dask
import dask.array as da
import numpy as np

import cudml.dask


def scores_of(block: np.ndarray) -> np.ndarray:
    """What would be read or computed: here a permutation of the numbers below 2**22, in steps of 2**-22."""
    return ((block * 5_000_011 + 12_345) % 2**22 / 2**22).astype(np.float32)


def main() -> None:
    places = da.arange(2**22, chunks=2**18, dtype=np.int64)
    scores = places.map_blocks(scores_of, dtype=np.float32)
    # Processes of this machine; with a `distributed.Client`, processes of other machines.
    values, indices = dask.compute(*cudml.dask.top_k(scores, 3), scheduler="processes", num_workers=2)
    for value, index in zip(values, indices, strict=True):
        print(f"{value:.9f} at {index}")
    right = scores_of(np.arange(2**22))
    expected = np.argsort(-right, kind="stable")[:3]
    print("as by a stable sort" if indices.tolist() == expected.tolist() else f"a sort has {expected}")


if __name__ == "__main__":
    main()
