"""Tensor descriptors: sizes, strides, bytes, overlap."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudml import (
    AxisDirection,
    DataType,
    ReverseSubsequencesDesc,
    TensorDesc,
    TensorFlags,
    TopK1Desc,
    TopKDesc,
)
from cudml.tensors import (
    byte_extent,
    is_injective,
    num_elements,
    packed_strides,
    plain_integer,
    plain_integers,
)

SIZES = st.lists(st.integers(1, 6), min_size=1, max_size=5).map(tuple)


@given(SIZES)
def test_packed_strides_are_numpys(sizes: tuple[int, ...]) -> None:
    assert packed_strides(sizes) == tuple(stride // 4 for stride in np.empty(sizes, np.float32).strides)
    assert num_elements(sizes) == np.empty(sizes).size


@pytest.mark.parametrize(
    ("tensor", "num_bytes"),
    [
        (TensorDesc(DataType.FLOAT32, (2, 3)), 24),
        (TensorDesc(DataType.INT8, (3,)), 4),
        (TensorDesc(DataType.FLOAT16, (1,)), 4),
        (TensorDesc(DataType.UINT64, (5,)), 40),
        (TensorDesc(DataType.UINT8, (2, 3), (8, 2)), 16),  # 1 + 1 * 8 + 2 * 2 = 13, rounded up
        (TensorDesc(DataType.FLOAT32, (4, 5), (0, 1)), 20),
        (TensorDesc(DataType.UINT4, (5,)), 4),
        (TensorDesc(DataType.FLOAT32, (2**16, 2**16), (0, 0)), 4),
    ],
)
def test_minimum_bytes_are_those_of_dml_calc_buffer_tensor_size(tensor: TensorDesc, num_bytes: int) -> None:
    assert tensor.minimum_bytes == num_bytes


def test_span_is_not_rounded() -> None:
    assert TensorDesc(DataType.INT8, (3,)).span_bytes == 3


def test_of_describes_strides_only_where_there_is_something_to_say() -> None:
    a = np.zeros((4, 6), np.int16)
    assert TensorDesc.of(a) == TensorDesc(DataType.INT16, (4, 6))
    assert TensorDesc.of(a[::2, 1:4]) == TensorDesc(DataType.INT16, (2, 3), (12, 1))
    assert TensorDesc.of(a.T) == TensorDesc(DataType.INT16, (6, 4), (1, 6))
    assert TensorDesc.of(np.broadcast_to(a, (3, 4, 6))).strides == (0, 6, 1)
    assert TensorDesc.of(np.zeros(3, bool)).data_type == DataType.UINT8


@pytest.mark.parametrize("array", [np.zeros(2, complex), np.zeros(2, ">f4"), np.array([None])])
def test_of_refuses_dtypes_that_directml_lacks(array: np.ndarray) -> None:
    with pytest.raises(TypeError, match=r"of dtype .*, must be float32, .*, bool, in native byte order$"):
        TensorDesc.of(array)


@pytest.mark.parametrize(("value", "kind"), [([1], "list"), (None, "NoneType"), (range(3), "range")])
def test_of_refuses_other_objects(value: object, kind: str) -> None:
    with pytest.raises(
        TypeError, match=rf"TensorDesc\.of: array is a {kind}, must be a NumPy or CuPy array$"
    ):
        TensorDesc.of(value)


def test_of_refuses_strides_between_elements() -> None:
    records = np.zeros(3, np.dtype([("a", "u1"), ("b", "<f4")], align=False))
    with pytest.raises(TypeError, match=r"array\.strides is \(5,\), must be multiples of 4, the b"):
        TensorDesc.of(records["b"])


def places(sizes: tuple[int, ...], strides: tuple[int, ...]) -> list[int]:
    """Every element's place, by brute force."""
    indices = itertools.product(*map(range, sizes))
    return [sum(i * s for i, s in zip(index, strides, strict=True)) for index in indices]


@given(st.data(), SIZES)
def test_layouts_of_slices_and_permutations_do_not_overlap(
    data: st.DataObject, sizes: tuple[int, ...]
) -> None:
    array = np.zeros(sizes, np.int8)
    steps = data.draw(st.tuples(*[st.sampled_from([-2, -1, 1, 2]) for _ in sizes]))
    view = array[tuple(slice(None, None, step) for step in steps)]
    view = view.transpose(data.draw(st.permutations(range(len(sizes)))))
    assert is_injective(view.shape, view.strides)


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(-9, 9)), min_size=1, max_size=4))
def test_what_counts_as_injective_is(pairs: list[tuple[int, int]]) -> None:
    sizes, strides = zip(*pairs, strict=True)
    found = places(sizes, strides)
    if is_injective(sizes, strides):
        assert len(set(found)) == len(found)


@given(SIZES, st.data())
def test_span_is_from_the_first_to_the_last_place(sizes: tuple[int, ...], data: st.DataObject) -> None:
    strides = data.draw(st.tuples(*[st.integers(0, 9) for _ in sizes]))
    assert TensorDesc(DataType.UINT8, sizes, strides).span_bytes == max(places(sizes, strides)) + 1


@given(st.lists(st.tuples(st.integers(1, 4), st.sampled_from([1, 2, -1, -3])), min_size=1, max_size=4))
def test_extent_in_bytes_is_numpys(axes: list[tuple[int, int]]) -> None:
    whole = np.zeros([size * abs(step) for size, step in axes], np.int16)
    view = whole[tuple(slice(None, None, step) for _, step in axes)]
    first = view.__array_interface__["data"][0]
    low, high = np.lib.array_utils.byte_bounds(view)
    assert byte_extent(view.shape, view.strides, 2) == (low - first, high - first)


def test_nothing_has_no_extent() -> None:
    assert byte_extent((3, 0), (-4, 4), 4) == (0, 0)


def test_dimensions_of_one_do_not_make_a_tensor_strided() -> None:
    assert TensorDesc(DataType.FLOAT32, (1, 3), (0, 1)).is_packed
    assert not TensorDesc(DataType.FLOAT32, (2, 3), (0, 1)).is_packed


def test_integers_of_other_libraries_become_pythons_and_the_rest_is_left_to_the_checks() -> None:
    tensor = TensorDesc(DataType.FLOAT32, [np.int64(2), 3], np.array([3, 1]), TensorFlags.NONE, np.int32(24))  # type: ignore[arg-type]
    assert (tensor.sizes, tensor.strides) == ((2, 3), (3, 1))
    assert {type(size) for size in (*tensor.sizes, tensor.total_tensor_size_in_bytes)} == {int}
    assert hash(tensor) == hash(TensorDesc(DataType.FLOAT32, (2, 3), (3, 1), TensorFlags.NONE, 24))
    for value, plain in [("ab", "ab"), (5, 5), ([1.5], (1.5,)), ([True], (True,)), (None, None)]:
        assert repr(plain_integers(value)) == repr(plain)
    for value, plain in [
        (np.uint8(3), 3),
        (np.array(3), 3),
        (True, True),
        (1.0, 1.0),
        ("2", "2"),
        (None, None),
    ]:
        assert repr(plain_integer(value)) == repr(plain)


A, VALUES = TensorDesc(DataType.FLOAT32, (2, 8)), TensorDesc(DataType.FLOAT32, (2, 1))
INDICES = TensorDesc(DataType.UINT32, (2, 1))


@pytest.mark.parametrize(
    ("desc", "members"),
    [
        (ReverseSubsequencesDesc(A, INDICES, A, 1), ["axis"]),
        (TopKDesc(A, VALUES, INDICES, 1, 1), ["axis", "k"]),
        (TopK1Desc(A, VALUES, INDICES, 1, 1, AxisDirection.INCREASING), ["axis", "k"]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_numbers_of_descriptors_may_be_numpys(desc: Any, members: list[str]) -> None:
    same = replace(desc, **dict.fromkeys(members, np.int64(1)))
    assert same == desc
    assert [type(getattr(same, member)) for member in members] == [int] * len(members)
