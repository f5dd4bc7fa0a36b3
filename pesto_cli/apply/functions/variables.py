"""Variables of TF2 programs, created where a placement has them."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pesto_cli.apply.devices import tensorflow_devices
from pesto_cli.files import PlacementFile
from pesto_cli.graphdef.tensorflow import tensorflow


@contextmanager
def placed_variables(
    placement: PlacementFile, devices: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Create every `tf.Variable`, those of Keras too, on the device of its ops.

    A variable that TensorFlow has created stays where it is, and what uses it has to run there. So
    models and optimisers are built, and functions traced, within this context. Variables are known
    by name; those that the placement does not know go where they would without it.

    devices: as in `place_function`.
    """
    tf = tensorflow()
    names = tensorflow_devices(placement.devices, set(placement.device), devices or {})
    planned = zip(placement.names, placement.device, strict=True)
    device_of = {name: names[index] for name, index in planned}
    created: Counter[str] = Counter()

    def create(next_creator: Callable[..., Any], **options: Any) -> Any:
        name = "/".join(
            filter(None, [tf.get_current_name_scope(), options.get("name") or "Variable"])
        )
        # As `graphdef.functions` tells variables of one name apart.
        nth = f"{name}_variable_{created[name]}" if created[name] else name
        created[name] += 1
        with tf.device(device_of.get(nth)):
            return next_creator(**options)

    with tf.variable_creator_scope(create):
        yield
