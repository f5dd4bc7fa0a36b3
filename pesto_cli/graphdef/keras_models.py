"""Trace the training step of a compiled Keras model."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pesto_cli.errors import BadInputError
from pesto_cli.graphdef.fetches import Shape, require_static, suggestion
from pesto_cli.graphdef.functions import traced
from pesto_cli.graphdef.self_contained import built_for_replicas
from pesto_cli.graphdef.specs import fit_data
from pesto_cli.graphdef.tensorflow import tensorflow


def traced_train_step(model: Any, specs: Any, feeds: Mapping[str, Shape], what: str) -> Any:
    """Return the concrete function of `model.train_step` on one batch.

    specs: those of the data that `fit` would pass, in the form that `fit_data` expects. If None,
        they are inferred from the model's own shapes; `feeds` gives the shapes of inputs and
        targets with open dimensions (the batch), by name.
    what: names the source in errors.

    `train_step` itself is traced, because the step that the model compiles may go through XLA.

    Raises BadInputError when the model is not compiled, is built for several replicas, or has an
    open dimension.
    """
    _check_trainable(model, what)
    data = _inferred_specs(model, feeds, what) if specs is None else fit_data(specs, what)
    return _traced(model, data, what)


def traced_on_batch(model: Any, batch: Any, what: str) -> Any:
    """Return the concrete function of `model.train_step` for a batch of tensors that `fit` passes.

    Raises BadInputError when the model is not compiled or is built for several replicas.
    """
    _check_trainable(model, what)
    return _traced(model, batch_specs(batch), what)


def batch_specs(batch: Any) -> Any:
    """Return the structure of a batch with the spec of each tensor; absent values stay None."""
    tf = tensorflow()
    return tf.nest.map_structure(
        lambda value: None if value is None else tf.type_spec_from_value(value), batch
    )


def _check_trainable(model: Any, what: str) -> None:
    if not getattr(model, "compiled", False):
        raise BadInputError(
            f"{what}: the Keras model {model.name!r} is not compiled, so it has neither a loss nor"
            " an optimiser. Call model.compile(...) before returning it."
        )
    strategy = getattr(model, "distribute_strategy", None)
    if strategy is not None and strategy.num_replicas_in_sync > 1:
        found = f"model {model.name!r}, {strategy.num_replicas_in_sync} replicas"
        raise built_for_replicas(what, found)


def _traced(model: Any, data: Any, what: str) -> Any:
    step = tensorflow().function(model.train_step)
    return traced(step, [data], {}, f"{what}: the training step of {model.name!r}")


def _inferred_specs(model: Any, feeds: Mapping[str, Shape], what: str) -> tuple[Any, Any]:
    """Return the specs (inputs, targets) of a model with defined input shapes.

    Both have the structure of the model's inputs and outputs: a single spec, a list or a dict.
    """
    inputs = getattr(model, "inputs", None)
    if not inputs:
        raise BadInputError(
            f"{what}: the Keras model {model.name!r} has no defined input shapes. Return"
            " (model, [inputs, targets]) with a tf.TensorSpec for each."
        )
    names = [tensor.name for tensor in inputs]
    outputs = _output_names(model)
    for name in feeds:
        if name not in (*names, *outputs):
            raise BadInputError(
                f"{what}: --feed {name}: no such input.{suggestion(name, [*names, *outputs])}"
            )
    input_specs = [_spec(t.name, t.shape, t.dtype, feeds, what) for t in inputs]
    batch = input_specs[0].shape[0]
    targets = []
    for name, output, loss in zip(outputs, model.outputs, _losses(model, what), strict=True):
        is_sparse = _is_sparse(loss)
        sizes = output.shape[1:-1] if is_sparse else output.shape[1:]
        dtype = "int32" if is_sparse else output.dtype
        given = {name: (batch, *sizes), **feeds}
        target = _spec(name, (inputs[0].shape[0], *sizes), dtype, given, what)
        if batch not in (None, target.shape[0]):
            raise BadInputError(
                f"{what}: --feed {_option(name, target.shape)}: the batch is {target.shape[0]}, "
                f"where {batch} was expected, as in --feed "
                f"{_option(names[0], input_specs[0].shape)}. Give both the same batch."
            )
        targets.append(target)
    require_static({spec.name: spec.shape.as_list() for spec in (*input_specs, *targets)}, what)
    return (
        _structured(model.inputs, input_specs, getattr(model, "input", None)),
        _structured(model.outputs, targets, getattr(model, "output", None)),
    )


def _spec(
    name: str, shape: Sequence[int | None], dtype: str, feeds: Mapping[str, Shape], what: str
) -> Any:
    tf = tensorflow()
    given = feeds.get(name, shape)
    fits = len(given) == len(shape) and all(
        size in (None, wanted) for size, wanted in zip(shape, given, strict=False)
    )
    if not fits:
        found = str(["?" if size is None else size for size in shape]).replace("'", "")
        raise BadInputError(
            f"{what}: --feed {_option(name, given)}: the shape in the model is {found}."
            " Replace only open dimensions ('?')."
        )
    return tf.TensorSpec(given, dtype, name=name)


def _option(name: str, sizes: Iterable[int | None]) -> str:
    return f"{name}={','.join(map(str, sizes))}"


def _output_names(model: Any) -> list[str]:
    """Return a feed name for each target: `targets`; `targets_OUTPUT` if there are several."""
    names = list(getattr(model, "output_names", []))
    if len(model.outputs) == 1:
        return ["targets"]
    return [f"targets_{name}" for name in names]


def _losses(model: Any, what: str) -> list[Any]:
    """Return the loss of each output, as given to `compile`."""
    loss = model.loss
    if isinstance(loss, Mapping):
        output = getattr(model, "output", None)
        keys = {id(t): key for key, t in output.items()} if isinstance(output, Mapping) else {}
        names = zip(model.outputs, model.output_names, strict=True)
        return [loss.get(keys.get(id(tensor), name)) for tensor, name in names]
    if isinstance(loss, (list, tuple)):
        if len(loss) != len(model.outputs):
            raise BadInputError(
                f"{what}: the Keras model {model.name!r} has {len(model.outputs)} outputs and "
                f"{len(loss)} losses; a loss for each output was expected. Complete the losses of "
                "`compile`."
            )
        return list(loss)
    return [loss] * len(model.outputs)


def _is_sparse(loss: Any) -> bool:
    """Return whether a loss is sparse, that is, whether its targets are class numbers.

    The name of the loss, or that of its class, says so. loss: a string, a function or a Keras
    object.
    """
    names = [loss] if isinstance(loss, str) else [type(loss).__name__]
    names += [getattr(loss, attribute, "") for attribute in ("name", "__name__")]
    return any("sparse" in str(name).lower() for name in names)


def _structured(tensors: Sequence[Any], specs: Sequence[Any], structure: Any) -> Any:
    """Return the specs in the structure in which the model has its symbolic tensors."""
    nest = tensorflow().nest
    # A structure that is not nested is a single tensor. For a Sequential, this tensor is not among
    # `tensors`.
    if not nest.is_nested(structure):
        return specs[0] if len(specs) == 1 else specs
    spec_of = {id(tensor): spec for tensor, spec in zip(tensors, specs, strict=True)}
    return nest.map_structure(lambda tensor: spec_of[id(tensor)], structure)
