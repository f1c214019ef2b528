"""Check that a conda recipe is valid and has the package's version: `python .ci/recipe.py RECIPE`."""

import sys

from rattler_build import Stage0Recipe

import cudml


def main(path: str) -> int:
    """1 if the versions differ; an exception of rattler-build names a wrong field."""
    for variant in Stage0Recipe.from_file(path).render():
        package = variant.recipe.package
        print(f"{package.name} {package.version}")
        if str(package.version) != cudml.__version__:
            print(f"{path} is of {package.version}, cudml of {cudml.__version__}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
