"""Refuse launches that a GPU does not support when a plan is loaded, and say what would fit."""

import math

from cudml.devices import GridTooLargeError
from cudml.plans import MAX_GRID_BLOCKS, KernelLaunch, Limits

#: Maximum number of blocks along x, y and z, the same on every GPU.
MAX_GRID = (MAX_GRID_BLOCKS, 65535, 65535)


def check_launch(launch: KernelLaunch, limits: Limits, device: str) -> None:
    """Raise ValueError if the device does not allow the shape of a launch, for any kernel.

    An empty grid is refused too: CuPy would launch one block.
    """
    told = f"{launch.source}: {launch.name_expression}"
    if min(launch.grid) < 1 or min(launch.block) < 1:
        raise ValueError(f"{told}: an empty launch, grid {launch.grid} and block {launch.block}")
    if any(size > most for size, most in zip(launch.grid, MAX_GRID, strict=True)):
        raise ValueError(f"{told}: a grid of {launch.grid} blocks, CUDA allows {MAX_GRID}")
    if math.prod(launch.block) > limits.max_threads_per_block:
        raise ValueError(
            f"{told}: a block of {launch.block} threads, {device} allows {limits.max_threads_per_block}"
        )
    if launch.shared_bytes > limits.shared_bytes_per_block:
        raise ValueError(
            f"{told}: {launch.shared_bytes} bytes of shared storage, "
            f"{device} has {limits.shared_bytes_per_block}"
        )
    if launch.grid[0] % launch.cluster_blocks:
        raise ValueError(
            f"{told}: a grid of {launch.grid[0]} blocks is not made of clusters of {launch.cluster_blocks}"
        )


def check_kernel(
    launch: KernelLaunch, limits: Limits, device: str, max_threads: int, resident_blocks: int
) -> None:
    """Raise if the registers and shared storage of the built kernel do not allow the launch.

    Parameters
    ----------
    max_threads : int
        Maximum number of threads of a block, given the kernel's registers.
    resident_blocks : int
        Number of blocks that one multiprocessor holds at once. Used for cooperative grids only, which must
        fit as a whole: CuPy would shrink one with a warning.

    Raises
    ------
    GridTooLargeError
        The grid is cooperative and too large: a plan with fewer blocks may do.
    ValueError
        Anything else.
    """
    told = f"{launch.source}: {launch.name_expression}"
    num_threads = math.prod(launch.block)
    if num_threads > max_threads:
        raise ValueError(
            f"{told}: a block of {num_threads} threads, its registers allow {max_threads} on {device}"
        )
    fits = resident_blocks * limits.num_multiprocessors
    num_blocks = math.prod(launch.grid)
    if launch.cooperative and num_blocks > fits:
        raise GridTooLargeError(
            f"{told}: a cooperative grid of {num_blocks} blocks, {fits} fit on {device} "
            f"({resident_blocks} of {num_threads} threads and {launch.shared_bytes} bytes of shared storage "
            f"on each of {limits.num_multiprocessors} multiprocessors)",
            fits,
        )
