"""Helpers that tests share: moving arrays, comparing bits, the emulator's schedules."""

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from cudml.devices import Device, emulator
from cudml.functions.transfer import download, upload
from cudml.plans import Plan

#: Move an array into a device's memory, packed, and back.
to_device, to_numpy = upload, download

#: Thread orders and their seeds: every kernel gives the same bits under each.
ORDERS = (("forward", 0), ("reverse", 0), ("random", 1), ("random", 2), ("random", 3))

#: Patterns that uninitialised shared storage is filled with: a NaN and 1.0, as float32.
POISONS = (0x7FC00000, 0x3F800000)


def is_for_a_cpu(path: str) -> bool:
    """Whether a path's kernels have blocks of one thread: they are not compiled for a GPU."""
    return path == "panels" or path.startswith("serial")


def marks_of(path: str) -> tuple[pytest.MarkDecorator, ...]:
    """The marks of a test's case that runs a path."""
    return (pytest.mark.cpu_only,) if is_for_a_cpu(path) else ()


def schedules() -> Iterator[contextlib.AbstractContextManager[Any]]:
    """Every thread order with every poison, as contexts for launches."""
    for (order, seed), poison in itertools.product(ORDERS, POISONS):
        yield emulator.schedule(order=order, seed=seed, poison=poison, strict=True, guard=True)


def run_plan(device: Device, plan: Plan, operands: dict[str, Any]) -> None:
    """Load and run a plan once with its own temporary resource; operands by member name."""
    workspace = device.empty((plan.temporary_bytes,), np.uint8) if plan.temporary_bytes else None
    device.load(plan)([operands[name] for name in plan.operands], workspace)


def assert_identical(got: Any, expected: np.ndarray) -> None:
    """Same shape, same dtype, same bits: a NaN equals only itself and -0.0 is not 0.0."""
    got = to_numpy(got)
    assert got.shape == expected.shape
    assert got.dtype == expected.dtype
    bits = np.dtype(f"V{expected.dtype.itemsize}")
    same = np.ascontiguousarray(got).view(np.uint8).reshape(-1, bits.itemsize) == np.ascontiguousarray(
        expected
    ).view(np.uint8).reshape(-1, bits.itemsize)
    different = np.flatnonzero(~same.all(axis=1))
    if len(different):
        where = np.unravel_index(different[0], expected.shape)
        raise AssertionError(
            f"{len(different)} of {expected.size} elements differ, first at {tuple(map(int, where))}: "
            f"got {got[where]!r}, expected {expected[where]!r}"
        )
