"""`script.py:function`: call a user's function and convert its result to a training step."""

import ast
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from pesto_cli.errors import BadInputError
from pesto_cli.graphdef.bound_functions import objects_kept_alive
from pesto_cli.graphdef.failures import reason, words
from pesto_cli.graphdef.fetches import TRAIN_OP, Shape, suggestion
from pesto_cli.graphdef.functions import concrete_function, function_graph
from pesto_cli.graphdef.keras_devices import (
    DeviceChoices,
    keras_without_gpus,
    warn_of_device_choices,
)
from pesto_cli.graphdef.keras_models import traced_train_step
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.graphdef.xla import compiled_function, compiled_model
from pesto_cli.printable import first_of, logger

EXPECTED = (
    "a train op, a dict with 'train_op', (tf.function, specs) or a compiled Keras model, alone or"
    " as (model, specs), where specs is a tf.TensorSpec or a tuple, list or dict of these,"
)

# How many functions of a script an error lists.
SHOWN_FUNCTIONS = 5

# Keras's `clear_session` fails with these words in a graph, and works in eager mode.
CLEARED_GRAPH = "to clear nested graphs"

log = logger(__name__)


def script_graph(path: Path, function: str, feeds: Mapping[str, Shape]) -> Any:
    """Return the MetaGraphDef of the training step that a function in the script at `path` builds.

    The function is called without arguments in a new default graph, as v1 code expects. If it
    fails, or returns something other than a train op, it is called again in eager mode, as
    tf.function and Keras expect. `function` may also be the name of a Keras model or a tf.function.

    Raises BadInputError when the script or the function fails, or its result is not as EXPECTED.
    """
    what = f"{path}:{function}"
    with keras_without_gpus() as choices, objects_kept_alive(), _neighbours_importable(path):
        meta = _script_graph(path, function, feeds, choices)
    warn_of_device_choices(choices, what)
    return meta


def _script_graph(
    path: Path, function: str, feeds: Mapping[str, Shape], choices: DeviceChoices
) -> Any:
    what = f"{path}:{function}"
    tf = tensorflow()
    built = script_function(path, function)
    if _is_model(built) or _is_function(built):
        return _eager_step(built, feeds, choices, what)
    failure: BadInputError | None = None
    with tf.Graph().as_default():
        try:
            result = _called(built, path, what)
        except BadInputError as error:
            failure = error
        else:
            if _train_op(result) is not None:
                return built_graph(result, what)
            if result is None:
                raise _unusable(result, what)
            if not _is_eager_step(result):
                failure = _unusable(result, what)
    _forget_keras_names()
    try:
        result = _called(built, path, what)
    except BadInputError:
        if failure is None or CLEARED_GRAPH in str(failure):
            raise
        raise failure from None
    return _eager_step(result, feeds, choices, what)


def script_function(path: Path, name: str) -> Any:
    """Return the callable of this name in the script at `path`.

    Raises BadInputError when the script fails, or has no callable of this name.
    """
    return _attribute(_module(path), name, f"{path}:{name}")


def built_graph(result: Any, what: str) -> Any:
    """Return the MetaGraphDef of a v1 graph.

    result: the train op, or a dict of `train_op` and other fetches. what: names the graph in
        errors.
    """
    tf1 = tensorflow().compat.v1
    train_op = _train_op(result)
    graph = train_op.graph
    others = _others(result, graph, what)
    with graph.as_default():
        graph.clear_collection(TRAIN_OP)
        for fetch in (train_op, *others):
            graph.add_to_collection(TRAIN_OP, fetch)
        return tf1.train.export_meta_graph(graph=graph)


def _is_eager_step(result: Any) -> bool:
    """Return whether a result is a model or a function, or begins with one."""
    first = result[0] if isinstance(result, list | tuple) and result else result
    return _is_model(first) or _is_function(first)


def _eager_step(result: Any, feeds: Mapping[str, Shape], choices: DeviceChoices, what: str) -> Any:
    built, specs = result, None
    if isinstance(result, Sequence) and len(result) == 2 and not isinstance(result, str):
        built, specs = result
    if _is_model(built):
        concrete = traced_train_step(built, specs, feeds, what)
        remark = compiled_model(built, choices)
    elif _is_function(built):
        concrete = concrete_function(built, specs, what)
        remark = compiled_function(concrete)
    else:
        raise _unusable(result, what)
    if remark is not None:
        log.warning("%s: %s", what, remark)
    return function_graph(concrete, what)


def _unusable(result: Any, what: str) -> BadInputError:
    """Return the error for a function that did not return a training step."""
    remedy = " Add a return statement." if result is None else ""
    if isinstance(result, Mapping) and TRAIN_OP in result:
        return BadInputError(
            f"{what}: returned {_described(result[TRAIN_OP])} as {TRAIN_OP!r}, where an operation"
            " or a tensor of a graph was expected; tf.group joins several."
        )
    if inspect.iscoroutine(result):
        result.close()
    return BadInputError(
        f"{what}: returned {_described(result)}, where {EXPECTED} was expected.{remedy}"
    )


def function_missing(source: str) -> BadInputError:
    """Return the error for a SOURCE that names a script but none of its functions.

    It lists the functions that can be called without arguments; the script does not run.
    """
    path = Path(source)
    if not path.is_file():
        return _no_script(path)
    names = _own_functions(path) or ["FUNCTION"]
    shown = first_of([f"{source}:{name}" for name in names], SHOWN_FUNCTIONS)
    return BadInputError(
        f"{source}: a script without a function, where script.py:FUNCTION was expected. Name the"
        f" function that builds the training step: {shown}. Or run the script up to its first"
        f" training step and capture the graph: pesto export {source} --capture"
    )


def _no_script(path: Path) -> BadInputError:
    return BadInputError(f"{path}: no such script. Check the path.")


def _own_functions(path: Path) -> list[str]:
    """Return the names of public functions at the top of a script that need no arguments."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return []
    found = [each for each in tree.body if isinstance(each, ast.FunctionDef)]
    return [
        each.name
        for each in found
        if not each.name.startswith("_")
        and len(each.args.posonlyargs + each.args.args) == len(each.args.defaults)
        and None not in each.args.kw_defaults
    ]


class _SourceLoader(SourceFileLoader):
    """Compiles a script at each import, and writes no bytecode beside it.

    Python runs stored bytecode if the script has the same size and was changed in the same second.
    So it could run an older text of a script that was changed twice in a second.
    """

    def get_code(self, fullname: str) -> CodeType:
        """Return the code of the source."""
        code: CodeType = self.source_to_code(self.get_data(self.path), self.path)
        return code


def _module(path: Path) -> ModuleType:
    if not path.is_file():
        raise _no_script(path)
    if path.suffix != ".py":
        raise BadInputError(f"{path}: not a Python script.")
    name = f"script_{path.stem}"  # the script may have the name of an installed module
    loader = _SourceLoader(name, str(path))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look up the module of a class
    try:
        with _neighbours_importable(path):
            loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise script_failed(path, str(path), "cannot be imported", error) from error
    return module


@contextmanager
def _neighbours_importable(path: Path) -> Iterator[None]:
    """Let a script import the modules in its folder, also when its functions run."""
    folder = str(path.parent.resolve())
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        if folder in sys.path:  # the script may have changed the path
            sys.path.remove(folder)


def _attribute(module: ModuleType, name: str, what: str) -> Any:
    found = getattr(module, name, None)
    if callable(found):
        return found
    own = [
        key
        for key, value in vars(module).items()
        if callable(value) and getattr(value, "__module__", None) == module.__name__
    ]
    problem = f"no function {name!r}" if found is None else f"{name!r} is not a function"
    raise BadInputError(f"{what}: {problem}.{suggestion(name, own)}")


def _called(function: Any, path: Path, what: str) -> Any:
    try:
        return function()
    except (Exception, SystemExit) as error:
        raise script_failed(path, what, "failed", error) from error


def script_failed(path: Path, what: str, how: str, error: BaseException) -> BadInputError:
    """Return the error for a script that failed, with the last line of the script in the stack."""
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).resolve() == path.resolve()
    ]
    if isinstance(error, SyntaxError) and error.lineno is not None:
        lines = [error.lineno]
    where = f" in line {lines[-1]}" if lines else ""
    why = reason(error) if isinstance(error, tensorflow().errors.OpError) else words(error)
    return BadInputError(f"{what}: {how}{where}: {type(error).__name__}: {why}")


def _train_op(result: Any) -> Any:
    """Return the operation that a v1 builder returned, or None."""
    tf = tensorflow()
    train_op = result.get(TRAIN_OP) if isinstance(result, Mapping) else result
    if isinstance(train_op, tf.Operation):
        return train_op
    if isinstance(train_op, tf.Tensor) and not hasattr(train_op, "numpy"):
        return train_op.op
    # An assignment to a variable returns a variable whose op is the assignment.
    if isinstance(train_op, tf.Variable) and hasattr(train_op, "op"):
        return None if train_op.op.type == "VarHandleOp" else train_op.op
    return None


def _others(result: Any, graph: Any, what: str) -> list[Any]:
    """Return the fetches in addition to the train op, in the dict's order."""
    tf = tensorflow()
    if not isinstance(result, Mapping):
        return []
    others = {
        key: graph.as_graph_element(value) if isinstance(value, tf.Variable) else value
        for key, value in result.items()
        if key != TRAIN_OP
    }
    for key, value in others.items():
        if not isinstance(value, (tf.Operation, tf.Tensor)):
            raise BadInputError(
                f"{what}: returned {_described(value)} as {key!r} in the dict with the train op,"
                " where only tensors and operations can be fetched."
            )
    return [*others.values()]


def _is_function(value: Any) -> bool:
    tf = tensorflow()
    kinds = (tf.types.experimental.PolymorphicFunction, tf.types.experimental.ConcreteFunction)
    return isinstance(value, kinds)


def _is_model(value: Any) -> bool:
    """Return whether a value is a Keras model; do not import Keras for programs without it."""
    keras = sys.modules.get("keras")
    return keras is not None and isinstance(value, keras.Model)


def _forget_keras_names() -> None:
    """Reset Keras's counters, so that a second build of a model has the same names as the first."""
    keras = sys.modules.get("keras")
    if keras is not None:
        keras.backend.clear_session()


def _described(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, Mapping):
        return f"a dict with {', '.join(map(repr, value))}" if value else "an empty dict"
    name = type(value).__name__
    return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"
