"""Parameter structs of the tests' own kernels."""

from cudml.plans import Params, ParamStruct, Value


def params_of(**members: tuple[str, Value]) -> Params:
    """A struct declared for one launch: `params_of(num_rows=("Int64", 5), sizes=("Int64", (2, 3)))`."""
    declarations = [
        f"{c_type} {name}" + (f"[{len(value)}]" if isinstance(value, tuple) else "")
        for name, (c_type, value) in members.items()
    ]
    return Params(ParamStruct(*declarations), {name: value for name, (_, value) in members.items()})
