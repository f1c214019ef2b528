"""Put Python functions in the place of functions of CuPy's bindings, before CuPy is imported.

The bindings are Cython modules. Other Cython modules reach their functions through capsules, which hold a C
function and its signature as text; Python code reaches them by name. From each signature a C function is made
that calls the Python function and passes its error on.
"""

import ctypes
import hashlib
import os
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from cudml.devices.emulator.build import compiler
from cudml.settings import cache_dir

#: By C type of the signatures: its format for Python, and the result that stands for an error.
_TYPES = {
    "int": ("i", "-1"),
    "CUdevice": ("i", "-1"),
    "cudaMemcpyKind": ("i", "-1"),
    "unsigned int": ("I", "0"),
    "intptr_t": ("n", "0"),
    "size_t": ("n", "(size_t)-1"),
    "uintmax_t": ("n", "0"),
    "float": ("d", "-1"),
    "PyObject *": ("O", "0"),
}
_SIGNATURE = re.compile(r"^(.*?)\s*\((.*)\)$")
_SKIP = "int __pyx_skip_dispatch"
#: Optional arguments: how many are given, then each; all are integers of 32 bits here.
_OPTIONAL = "__pyx_optional_args"

#: Handles of threads are destroyed when no Python code can run any more; one of the two functions exists.
_ENDED = """
extern int Py_IsFinalizing(void) __attribute__((weak));
extern int _Py_IsFinalizing(void) __attribute__((weak));
static int has_ended(void) {
  return Py_IsFinalizing ? Py_IsFinalizing() : _Py_IsFinalizing ? _Py_IsFinalizing() : 0;
}
"""

_PRELUDE = f"""
#include <stddef.h>
#include <stdint.h>
{_ENDED}
typedef struct PyObject PyObject;
typedef int CUdevice;
typedef int cudaMemcpyKind;
extern PyObject* PyObject_CallFunction(PyObject*, const char*, ...);
extern long long PyLong_AsLongLong(PyObject*);
extern double PyFloat_AsDouble(PyObject*);
extern PyObject* PyErr_Occurred(void);
extern void Py_DecRef(PyObject*);
typedef struct {{ int count, first; }} Optional;
"""

_api = ctypes.pythonapi
_api.PyCapsule_GetName.restype, _api.PyCapsule_GetName.argtypes = ctypes.c_char_p, [ctypes.py_object]
_api.Py_IncRef.restype, _api.Py_IncRef.argtypes = None, [ctypes.py_object]
_api.PyCapsule_New.restype = ctypes.py_object
_api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]

#: What the bindings point to for the life of the process.
_kept: list[Any] = []


def replace(module: ModuleType, function_of: Callable[[str], Callable[..., Any] | None]) -> None:
    """Replace each function of a binding by `function_of` its name; None leaves it as it is."""
    capsules = module.__pyx_capi__
    signatures = {name: _api.PyCapsule_GetName(capsule).decode() for name, capsule in capsules.items()}
    functions = {name: function_of(name) for name, signature in signatures.items() if "(" in signature}
    replaced = {name: function for name, function in functions.items() if function is not None}
    text = _PRELUDE + "".join(_trampoline(name, signatures[name]) for name in replaced)
    library = built(text, module.__name__.rsplit(".", 1)[-1])
    for name, function in replaced.items():
        signature = ctypes.create_string_buffer(signatures[name].encode())
        _kept.append(signature)
        _api.Py_IncRef(function)
        ctypes.c_void_p.in_dll(library, f"callable_{name}").value = id(function)
        address = ctypes.cast(getattr(library, f"trampoline_{name}"), ctypes.c_void_p)
        capsules[name] = _api.PyCapsule_New(address, ctypes.cast(signature, ctypes.c_char_p), None)
        setattr(module, name, function)
    for name, value in [*vars(module).items()]:
        if name not in functions and callable(value) and not isinstance(value, type):
            function = function_of(name)
            if function is not None:
                setattr(module, name, function)


def _trampoline(name: str, signature: str) -> str:
    found = _SIGNATURE.match(signature)
    if found is None:
        raise TypeError(f"{name} has the signature {signature}, which is not known")
    result, given = found.groups()
    is_object = result.endswith("*")
    types = [text.strip() for text in given.split(",") if text.strip() not in ("", "void")]
    parameters, passed, formats = [], [], ""
    for number, text in enumerate(types):
        if text == _SKIP:
            parameters.append("int skip")
        elif text.endswith(_OPTIONAL):
            parameters.append("const Optional* optional")
            # Two calls, because an argument that is not given has the Python function's default.
        elif text.startswith("struct "):
            parameters.append(f"PyObject* a{number}")
            formats, passed = formats + "O", [*passed, f"a{number}"]
        else:
            parameters.append(f"{text} a{number}")
            formats, passed = formats + _TYPES[text][0], [*passed, f"a{number}"]
    arguments = "".join(f", {one}" for one in passed)
    # A format of one object is not a list of arguments, so it is in brackets.
    call = f'PyObject_CallFunction(callable_{name}, "({formats})"{arguments})'
    if any(text.endswith(_OPTIONAL) for text in types):
        more = f'PyObject_CallFunction(callable_{name}, "({formats}i)"{arguments}, optional->first)'
        call = f"optional && optional->count ? {more} : {call}"
    head = f"PyObject* callable_{name};\n"
    if is_object:
        return f"{head}PyObject* trampoline_{name}({', '.join(parameters)}) {{ return {call}; }}\n"
    convert = "PyFloat_AsDouble" if result == "float" else "PyLong_AsLongLong"
    failed = _TYPES[result][1]
    return f"""{head}{result} trampoline_{name}({", ".join(parameters)}) {{
  if (has_ended()) return 0;
  PyObject* made = {call};
  if (!made) return {failed};
  {result} value = ({result}){convert}(made);
  Py_DecRef(made);
  return PyErr_Occurred() ? {failed} : value;
}}
"""


def built(text: str, name: str, flags: Sequence[str] = ()) -> ctypes.CDLL:
    """The library of a C text, compiled if necessary, under a name for the loader."""
    command = (*compiler().command, "-x", "c", "-O1", "-shared", "-fPIC", "-w", f"-Wl,-soname,{name}", *flags)
    key = hashlib.sha256(repr((text, command, compiler().version)).encode()).hexdigest()[:16]
    path = cache_dir() / "stand-in" / f"{name}-{key}"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        source, own = path.with_suffix(f".{os.getpid()}.c"), path.with_suffix(f".{os.getpid()}")
        source.write_text(text)
        try:
            subprocess.run([*command, "-o", str(own), str(source)], check=True)
            os.replace(own, path)
        finally:
            source.unlink()
    return ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)


def exported(
    soname: str,
    functions: dict[str, tuple[Sequence[Any], Callable[..., int]]],
    others: Sequence[str],
    status: int,
    flags: Sequence[str] = (),
) -> None:
    """Load a library of C functions that call Python: argument types and function by name.

    `others` print their names and return the status.
    """
    names = {
        ctypes.c_void_p: "void*",
        ctypes.c_int: "int",
        ctypes.c_size_t: "size_t",
        ctypes.c_longlong: "long long",
    }
    text = f"#include <stddef.h>\n#include <stdio.h>\n{_ENDED}"
    for name, (types, _) in functions.items():
        parameters = ", ".join(f"{names[one]} a{number}" for number, one in enumerate(types))
        passed = ", ".join(f"a{number}" for number in range(len(types)))
        text += f"int (*pointer_{name})({parameters or 'void'});\n"
        text += (
            f"int {name}({parameters or 'void'}) {{ return has_ended() ? 0 : pointer_{name}({passed}); }}\n"
        )
    for name in others:
        unknown = f'fputs("{name} is not known to the stand-in for CUDA\\n", stderr)'
        text += f"int {name}(void) {{ {unknown}; return {status}; }}\n"
    library = built(text, soname, flags)
    for name, (types, function) in functions.items():
        callback = ctypes.CFUNCTYPE(ctypes.c_int, *types)(function)
        _kept.append(callback)
        ctypes.c_void_p.in_dll(library, f"pointer_{name}").value = ctypes.cast(
            callback, ctypes.c_void_p
        ).value


def undefined_symbols(path: Path, prefix: str) -> list[str]:
    """The functions with a prefix that a shared library takes from others."""
    found = subprocess.run(
        ["nm", "-D", "--undefined-only", str(path)], check=True, capture_output=True, text=True
    )
    names = (line.split()[-1].split("@")[0] for line in found.stdout.splitlines())
    return sorted({name for name in names if name.startswith(prefix)})


def needed_libraries(path: Path) -> list[str]:
    """The libraries that a shared library is linked with."""
    found = subprocess.run(["readelf", "-d", str(path)], check=True, capture_output=True, text=True)
    return re.findall(r"\(NEEDED\).*\[(.+)\]", found.stdout)
