"""`python -m bench gru-shapes`: times of a GRU's shapes on this GPU, by which its numbers are chosen.

Layers of float32 are computed by every path, and by the kernel "grid" in each of its shapes that is estimated
to take up to 2.5 times as long as the best. GPU-gru_shapes.csv gets the times; the last line says how far the
choice by the least estimate is from the fastest one. The results of all shapes have to have the same bits.
"""

import argparse
import csv
import io
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from bench import results
from bench.cases import WrongResultError
from bench.checks import require_identical
from bench.paths import origin_of
from bench.prediction.draw import figures_of
from bench.prediction.scans.gru import desc_of
from bench.sources import Source
from bench.targets import Target, get_target
from bench.timing import Timer, timer_of
from cudml.devices import Device, get_device
from cudml.operators.gru import operator as gru
from cudml.operators.gru.clocks import CLOCKS, Clocks, grid_clocks
from cudml.operators.gru.layer import Layer, Shape
from cudml.operators.gru.operator import GruDesc
from cudml.operators.gru.paths import estimated_clocks, steps_of_grid
from cudml.operators.gru.shapes import grid_shapes
from cudml.plans import Limits, Plan

#: Steps: enough to make the launches a small part of the time.
NUM_STEPS = 96

#: Hidden sizes and batches on both sides of those at which other paths and shapes take over.
LAYERS = (
    *((168, 62), (256, 32), (256, 128), (400, 16), (512, 16), (512, 32), (512, 64), (512, 128), (600, 24)),
    *((1024, 8), (1024, 16), (1024, 32), (1024, 64), (1024, 128)),
    *((2048, 4), (2048, 8), (2048, 16), (2048, 32), (3000, 4)),
)

#: Shapes that are estimated to take more than this multiple of the best one's clocks are not measured.
_MOST_OF_BEST = 2.5

#: The paths that are compared with shapes of "grid".
_OTHER_PATHS = ("products", "block")


@dataclass(frozen=True)
class Row:
    """A layer, how it was computed, and the microseconds of a call.

    `num_groups` and `round_batch` are 0 for paths other than "grid", `round_batch` also for fixed items.
    """

    hidden_size: int
    batch_size: int
    num_steps: int
    path: str
    num_groups: int
    round_batch: int
    median_us: float

    @property
    def layer(self) -> tuple[int, int]:
        """The layer's sizes."""
        return self.hidden_size, self.batch_size


def candidates(layer: Layer, limits: Limits) -> Iterator[tuple[str, Shape | None]]:
    """Paths, and the shapes of "grid" that are worth a measurement."""
    can_do = estimated_clocks(layer, limits)
    yield from ((path, None) for path in _OTHER_PATHS if path in can_do)
    shapes = grid_shapes(layer, limits)
    clocks = [grid_clocks(shape, layer, CLOCKS) for shape in shapes]
    for shape, count in zip(shapes, clocks, strict=True):
        if shape.num_shards > 1 and count <= _MOST_OF_BEST * min(clocks):
            yield "grid", shape


def plan_by(desc: GruDesc, limits: Limits, path: str, shape: Shape | None) -> Plan:
    """The plan by a path, or by a shape of the path "grid"."""
    plan = gru.plan(desc, limits, path=path)
    if shape is None:
        return plan
    steps, workspaces = steps_of_grid(gru.layer_of(desc), limits, shape)
    return plan._replace(steps=steps, workspaces=workspaces)


def measured(
    hidden: int, batch: int, target: Target, timer: Timer, device: Device, seconds: float
) -> Iterator[Row]:
    """The rows of a layer.

    Raises WrongResultError if two shapes have different results.
    """
    desc = desc_of("float32", NUM_STEPS, batch, hidden)
    operands = _operands(hidden, batch, target.xp)
    output = operands["output_sequence_tensor"]
    first = None
    for path, shape in candidates(gru.layer_of(desc), device.limits):
        plan = plan_by(desc, device.limits, path, shape)
        workspace = target.xp.empty(max(plan.temporary_bytes, 1), "uint8")
        call = partial(device.load(plan), [operands[name] for name in plan.operands], workspace)
        output[...] = 0
        call()
        if shape is not None and first is not None:
            require_identical(output, first)
        elif shape is not None:
            first = output.copy()
        time = round(timer.measure(call, "warm", seconds).median_us, 2)
        groups, rounds = (0, 0) if shape is None else (shape.num_groups, round_batch_of(shape))
        yield Row(hidden, batch, NUM_STEPS, path, groups, rounds, time)


def round_batch_of(shape: Shape) -> int:
    """Sequences of a round; 0 for fixed items."""
    return 0 if shape.is_fixed else shape.round_batch


def _operands(hidden: int, batch: int, xp: Any) -> dict[str, Any]:
    source = Source(xp, 1)

    def weights(*sizes: int) -> Any:
        return (2 * source.uniform(sizes) - 1) * xp.float32(hidden**-0.5)

    return {
        "input_tensor": source.normal((1, NUM_STEPS, batch, hidden)),
        "weight_tensor": weights(1, 1, 3 * hidden, hidden),
        "recurrence_tensor": weights(1, 1, 3 * hidden, hidden),
        "bias_tensor": weights(1, 1, 1, 6 * hidden),
        "output_sequence_tensor": xp.zeros((NUM_STEPS, 1, batch, hidden), "float32"),
        "output_single_tensor": xp.zeros((1, 1, batch, hidden), "float32"),
    }


def regrets(rows: Iterable[Row], limits: Limits, numbers: Clocks = CLOCKS) -> dict[tuple[int, int], float]:
    """By layer, the time of the path or shape with the least estimate, as a multiple of the least time."""
    by_layer: dict[tuple[int, int], list[Row]] = {}
    for row in rows:
        by_layer.setdefault(row.layer, []).append(row)
    found = {}
    for sizes, own in by_layer.items():
        hidden, batch = sizes
        layer = gru.layer_of(desc_of("float32", own[0].num_steps, batch, hidden))
        of_paths = estimated_clocks(layer, limits, numbers)
        of_shapes = {
            (shape.num_groups, round_batch_of(shape)): grid_clocks(shape, layer, numbers)
            for shape in grid_shapes(layer, limits)
        }

        def estimate(row: Row, of_paths: Any = of_paths, of_shapes: Any = of_shapes) -> int:
            by_shape = row.path == "grid"
            return int(of_shapes[row.num_groups, row.round_batch] if by_shape else of_paths[row.path])

        found[sizes] = min(own, key=estimate).median_us / min(row.median_us for row in own)
    return found


def table_of(slug: str, folder: Path = results.RESULTS) -> Path:
    """The table of a GPU."""
    return folder / f"{slug}-gru_shapes.csv"


def write(table: Path, origin: str, rows: Iterable[Row]) -> None:
    """Replace a table; its first line says where the times come from."""
    text = io.StringIO()
    text.write(f"# {origin}\n")
    writer = csv.DictWriter(text, [field.name for field in fields(Row)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    own = table.with_suffix(".tmp")
    own.write_text(text.getvalue())
    os.replace(own, table)


def read(table: Path) -> list[Row]:
    """The rows of a table."""
    with table.open(newline="") as file:
        next(file)
        return [
            Row(**{field.name: field.type(record[field.name]) for field in fields(Row)})  # type: ignore[operator]
            for record in csv.DictReader(file)
        ]


def main(arguments: list[str]) -> int:
    """Measure the layers; returns 1 if results differ."""
    parser = argparse.ArgumentParser(
        prog="python -m bench gru-shapes",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seconds", type=float, default=0.02, help="for one shape (default %(default)s)")
    parser.add_argument("--results", type=results.folder, default=results.RESULTS, metavar="FOLDER")
    parser.add_argument("--commit", help="if git is not available")
    options = parser.parse_args(arguments)
    target = get_target("cuda", options.commit)
    device, rows = get_device("cuda"), list[Row]()
    try:
        for hidden, batch in LAYERS:
            for row in measured(hidden, batch, target, timer_of(target), device, options.seconds):
                print(*asdict(row).values(), flush=True)
                rows.append(row)
            write(table_of(target.slug, options.results), origin_of(target, "warm"), rows)
    except WrongResultError as error:
        print(f"WRONG RESULT: {error}", file=sys.stderr)
        return 1
    found = regrets(rows, device.limits).values()
    print(f"regret: {figures_of(found)} ({len(found)} layers)")
    return 0
