"""`stripewise/_native.pyi` says what the compiled module has: names, parameters, methods and properties, both ways."""

import ast
import inspect
from pathlib import Path
from types import BuiltinFunctionType, GetSetDescriptorType, ModuleType, SimpleNamespace

import pytest

from stripewise import _native

STUB = Path(_native.__file__).with_name("_native.pyi")

Function = ast.FunctionDef
Parameter = tuple[str, str, object]
"""Name, kind, default."""

REQUIRED = inspect.Parameter.empty


def parsed(text: str) -> tuple[dict[str, Function], dict[str, ast.ClassDef]]:
    """Functions and classes of a stub; without classes of types alone, which no module has at run time."""
    body = ast.parse(text).body
    classes = [node for node in body if isinstance(node, ast.ClassDef)]
    types = {"TypedDict"}
    for node in classes:
        if any(isinstance(base, ast.Name) and base.id in types for base in node.bases):
            types.add(node.name)
    functions = {node.name: node for node in body if isinstance(node, Function)}
    return functions, {node.name: node for node in classes if node.name not in types}


def decorators(function: Function) -> set[str]:
    """Their names."""
    return {node.id for node in function.decorator_list if isinstance(node, ast.Name)}


def stubbed(function: Function, *, bound: bool = False) -> list[Parameter]:
    """The parameters that a stub gives a function; of a `bound` one without the first."""
    given = function.args
    assert given.vararg is None and given.kwarg is None, f"{function.name}: no parameter list of any length"
    positional = [(argument, "POSITIONAL_ONLY") for argument in given.posonlyargs]
    positional += [(argument, "POSITIONAL_OR_KEYWORD") for argument in given.args]
    missing = [None] * (len(positional) - len(given.defaults))
    defaults = [*missing, *given.defaults, *given.kw_defaults]
    every = positional[:] + [(argument, "KEYWORD_ONLY") for argument in given.kwonlyargs]
    parameters = [
        (argument.arg, kind, REQUIRED if default is None else ast.literal_eval(default))
        for (argument, kind), default in zip(every, defaults, strict=True)
    ]
    return parameters[1:] if bound else parameters


def compiled(of: object, *, bound: bool = False) -> list[Parameter]:
    """The parameters that a compiled function or class really takes."""
    parameters = list(inspect.signature(of).parameters.values())  # type: ignore[arg-type]
    if bound and parameters and parameters[0].name == "self":
        parameters = parameters[1:]
    return [(one.name, one.kind.name, one.default) for one in parameters]


def public(names: dict[str, object]) -> dict[str, object]:
    """Those that are not the interpreter's own."""
    return {name: value for name, value in names.items() if not name.startswith("__")}


def differences(text: str, module: ModuleType | SimpleNamespace) -> list[str]:
    """What a stub and a module say differently, in words."""
    functions, classes = parsed(text)
    there = public(vars(module))
    found = [f"{name}: in the stub alone" for name in sorted((functions.keys() | classes.keys()) - there.keys())]
    found += [f"{name}: not in the stub" for name in sorted(there.keys() - functions.keys() - classes.keys())]
    for name, node in functions.items():
        if name in there:
            found += differing(name, stubbed(node), there[name])
    for name, stub in classes.items():
        if name in there:
            found += class_differences(name, stub, there[name])
    return found


def differing(name: str, said: list[Parameter], real: object, *, bound: bool = False) -> list[str]:
    """The parameters of one function."""
    try:
        takes = compiled(real, bound=bound)
    except ValueError as error:
        return [f"{name}: {error}"]
    return [] if said == takes else [f"{name}: the stub says {said}, it takes {takes}"]


def class_differences(name: str, stub: ast.ClassDef, real: object) -> list[str]:
    """The methods, properties and constructor of one class."""
    assert isinstance(real, type), f"{name} is a class in the stub"
    said = {node.name: node for node in stub.body if isinstance(node, Function)}
    constructor = said.pop("__init__", None)
    there = public(dict(vars(real)))
    if issubclass(real, BaseException):
        return [] if not said and constructor is None else [f"{name}: an exception has nothing of its own"]
    found = [f"{name}.{one}: in the stub alone" for one in sorted(said.keys() - there.keys())]
    found += [f"{name}.{one}: not in the stub" for one in sorted(there.keys() - said.keys())]
    is_made = getattr(real, "__text_signature__", None) is not None
    if is_made != (constructor is not None):
        found.append(f"{name}: a constructor {'not in the stub' if is_made else 'in the stub alone'}")
    elif constructor is not None:
        found += differing(name, stubbed(constructor, bound=True), real)
    for one in sorted(said.keys() & there.keys()):
        node, value = said[one], there[one]
        kinds = {
            "property": isinstance(value, GetSetDescriptorType),
            "staticmethod": isinstance(value, staticmethod | BuiltinFunctionType),
            "classmethod": inspect.ismethoddescriptor(value) and type(value).__name__ == "classmethod_descriptor",
        }
        if {kind for kind, holds in kinds.items() if holds} != decorators(node):
            found.append(f"{name}.{one}: the stub says {decorators(node) or 'a method'}, it is {value!r}")
        elif not kinds["property"]:
            bound = not kinds["staticmethod"]
            found += differing(f"{name}.{one}", stubbed(node, bound=bound), getattr(real, one), bound=bound)
    return found


def test_the_stub_says_what_the_module_has() -> None:
    assert not (found := differences(STUB.read_text(encoding="utf-8"), _native)), "\n".join(found)


SAMPLE = """
from typing import TypedDict
class Row(TypedDict):
    name: str
class Longer(Row):
    size: int
def expand(text: str, most: int) -> list[Row]: ...
"""


@pytest.mark.parametrize(
    ("stub", "said"),
    [
        (SAMPLE, None),
        (SAMPLE.replace("most: int", "least: int"), "expand: the stub says"),
        (SAMPLE.replace("text: str, most: int", "most: int, text: str"), "expand: the stub says"),
        (SAMPLE.replace("most: int", "most: int = 5"), "expand: the stub says"),
        (SAMPLE.replace("text: str, most", "text: str, *, most"), "expand: the stub says"),
        (SAMPLE.replace("def expand", "def expanded"), "expand: not in the stub"),
        (SAMPLE + "def other() -> None: ...", "other: in the stub alone"),
        (SAMPLE + "class Other: ...", "Other: in the stub alone"),
    ],
)
def test_every_difference_is_seen(stub: str, said: str | None) -> None:
    found = differences(stub, SimpleNamespace(expand=_native.signature_expand))
    assert found == [] if said is None else any(said in one for one in found), found


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("def names() ->", "def called() ->"), "Trace.names: not in the stub"),
        (("    @staticmethod\n    def names(", "    def names("), "Trace.names: the stub says a method"),
        (("def sample(self, file: int, most: int)", "def sample(self, file: int)"), "Trace.sample: the stub says"),
        (("progress: Callable[[int, int], object] | None = None, *, files", "files"), "Trace: the stub says"),
    ],
)
def test_differences_of_a_class_are_seen(change: tuple[str, str], said: str) -> None:
    text = STUB.read_text(encoding="utf-8")
    assert change[0] in text
    assert any(said in one for one in differences(text.replace(*change), _native))
