"""Create the variables of TF2 programs on their planned devices."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

from pesto_cli.apply.devices import tensorflow_devices
from pesto_cli.files import PlacementFile
from pesto_cli.graphdef.programs.replaced import replaced
from pesto_cli.graphdef.tensorflow import tensorflow


@contextmanager
def placed_variables(
    placement: PlacementFile, devices: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Create every `tf.Variable`, including those of Keras, on its planned device.

    TensorFlow cannot move a variable after its creation, and the ops that use it have to run on its
    device. So build models and optimisers, and trace functions, within this context. Variables are
    identified by name. The device of a variable that is not in the placement is unchanged.

    devices: as in `place_function`.
    """
    tf = tensorflow()
    from tensorflow.python.ops import variables

    names = tensorflow_devices(placement.devices, set(placement.device), devices or {})
    planned = zip(placement.names, placement.device, strict=True)
    device_of = {name: names[index] for name, index in planned}
    created: Counter[str] = Counter()

    create = variables.Variable._variable_call.__func__

    def create_placed(cls: Any, *args: Any, **options: Any) -> Any:
        # TensorFlow calls this again for the subclass that it creates, which would count twice.
        # Variables in the graph of a session are placed by the session.
        if cls is not tf.Variable or not tf.compat.v1.executing_eagerly_outside_functions():
            return create(cls, *args, **options)
        name = "/".join(
            filter(None, [tf.get_current_name_scope(), options.get("name") or "Variable"])
        )
        # `graphdef.functions` numbers variables with the same name in the same way.
        nth = f"{name}_variable_{created[name]}" if created[name] else name
        created[name] += 1
        # `tf.device(None)` would end the device scope of the program.
        with tf.device(device_of[nth]) if nth in device_of else nullcontext():
            return create(cls, *args, **options)

    # Keras's `clear_session` would end a `tf.variable_creator_scope`.
    with replaced(variables.Variable, _variable_call=classmethod(create_placed)):
        yield
