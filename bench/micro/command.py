"""`python -m bench micro`: measure a GPU and store the figures with the results."""

import argparse
import csv
import sys
from collections.abc import Mapping
from pathlib import Path

from bench import results
from bench.micro import bandwidth, clusters, copies, latency, launches, selection
from bench.micro.figures import Figure, Gpu
from bench.targets import get_target

GROUPS = {
    module.GROUP: module.measure for module in (launches, latency, clusters, bandwidth, copies, selection)
}


def main(arguments: list[str]) -> int:
    """Print each figure as it is measured and write `<device>-micro.csv`; return 1 if a group failed."""
    parser = argparse.ArgumentParser(prog="python -m bench micro", description=__doc__)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"of {', '.join(GROUPS)}; default: all")
    parser.add_argument("--results", type=results.folder, default=results.RESULTS, metavar="FOLDER")
    parser.add_argument("--commit", help="recorded if git is not available")
    parser.add_argument(
        "--resume", action="store_true", help="leave out groups that the file has of the same commit"
    )
    options = parser.parse_args(arguments)
    if unknown := set(options.groups) - set(GROUPS):
        parser.error(f"no such group: {', '.join(sorted(unknown))}; there are {', '.join(GROUPS)}")
    target = get_target("cuda", options.commit)
    gpu = Gpu(target)
    path = options.results / f"{target.slug}-micro.csv"
    done = groups_of(path, target.environment["commit"]) if options.resume else set()
    failed = False
    for group in options.groups or GROUPS:
        if group in done:
            continue
        figures: list[Figure] = []
        try:
            for figure in GROUPS[group](gpu):
                figures.append(figure)
                print(f"{figure.group:<10} {figure.name:<76} {figure.value:>10.3f} {figure.unit}", flush=True)
        except Exception as error:
            failed = True
            print(f"{group}: {type(error).__name__}: {error}", file=sys.stderr)
        gpu.xp.get_default_memory_pool().free_all_blocks()
        merge(path, figures, target.environment)  # at once, so that nothing is lost when a later group hangs
    return 1 if failed else 0


def groups_of(path: Path, commit: str) -> set[str]:
    """The groups with figures of a commit in a file."""
    if not path.exists():
        return set()
    with path.open(newline="") as file:
        return {record["group"] for record in csv.DictReader(file) if record["commit"] == commit}


def merge(path: Path, figures: list[Figure], environment: Mapping[str, str]) -> None:
    """Write figures to a file, replacing those of the same groups."""
    columns = ["group", "name", "value", "unit", *environment]
    measured = {figure.group for figure in figures}
    records: list[dict[str, str]] = []
    if path.exists():
        with path.open(newline="") as file:
            records = [record for record in csv.DictReader(file) if record["group"] not in measured]
    for figure in figures:
        own = {
            "group": figure.group,
            "name": figure.name,
            "value": f"{figure.value:.4g}",
            "unit": figure.unit,
        }
        records.append(own | dict(environment))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="", extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)
