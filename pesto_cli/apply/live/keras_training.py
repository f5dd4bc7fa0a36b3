"""Keras models of an unmodified program that train with a placement.

TensorFlow cannot move a variable, so variables are created on their planned devices. When a model
trains on its first batch, its training step is traced and placed. After this, training steps of
other models, and of a model that was compiled in another way, run without the placement.
"""

import shlex
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pesto_cli.apply.devices import of_placement
from pesto_cli.apply.edits import Order
from pesto_cli.apply.functions import OtherFunctionError, PlacedFunction, place_function
from pesto_cli.apply.functions.variables import placed_variables
from pesto_cli.apply.live.hooks import raising_failure
from pesto_cli.apply.live.program import ProgramReport
from pesto_cli.errors import BadInputError, PestoError
from pesto_cli.files import PlacementFile
from pesto_cli.graphdef.keras_models import batch_specs, traced_on_batch
from pesto_cli.graphdef.programs.keras_steps import Step, replaced_steps, require_single_steps
from pesto_cli.graphdef.programs.run import ProgramStopped
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.printable import logger

log = logger(__name__)


class KerasTraining:
    """The training steps of the Keras models of a program.

    failure: why the program was stopped, or None.
    """

    def __init__(
        self,
        placement: PlacementFile,
        devices: Mapping[str, str] | None,
        order: Order,
        what: str,
    ) -> None:
        self.failure: PestoError | None = None
        self._placement, self._devices, self._order = placement, devices, order
        self._what = what
        self._step_us: list[float] = []
        self._placed: PlacedFunction | None = None
        self._warned: set[str] = set()

    def report(self) -> ProgramReport | None:
        """Return the results of the program; None if no Keras model has trained."""
        if self._placed is None:
            return None
        return ProgramReport(
            meta=self._placed.meta,
            changes=self._placed.changes,
            step_us=tuple(self._step_us),
            traced=None,
            sessions=(),
            unordered=(),
        )

    def step_of(self, model: Any) -> Step:
        """Return the training step of a model, which is placed at its first call."""
        placed: PlacedFunction | None = None
        specs: Any = None
        is_other = False
        whole = tensorflow().function(model.train_step, reduce_retracing=True)

        def step(batch: Any) -> Any:
            nonlocal placed, specs, is_other
            if self.failure is not None:
                raise ProgramStopped
            if placed is None and not is_other:
                placed, specs = self._place(model, batch), batch_specs(batch)
                is_other = placed is None
            if placed is None:
                return whole(batch)
            found = batch_specs(batch)
            if found != specs:
                self._warn(found, specs)
                return whole(batch)
            began = time.perf_counter()
            logs = placed(batch)
            self._step_us.append((time.perf_counter() - began) * 1e6)
            return logs

        return step

    def _place(self, model: Any, batch: Any) -> PlacedFunction | None:
        """Return the placed step of a model; None if another one was placed before."""
        try:
            require_single_steps(model, self._what)
            # XLA cannot compile an evaluation whose variables are on several devices.
            model.jit_compile = False
            self._placed = place_function(
                traced_on_batch(model, batch, self._what),
                self._placement,
                devices=self._devices,
                order=self._order,
                export=f"pesto export {shlex.quote(self._what)} --capture, with the same arguments",
            )
        except BadInputError as error:
            if self._placed is not None and isinstance(error, OtherFunctionError):
                log.warning(
                    "%s: model %r trains without the placement, which is for the first training "
                    "step of the program.",
                    self._what,
                    model.name,
                )
                return None
            self.failure = error
            raise ProgramStopped from None
        return self._placed

    def _warn(self, found: Any, planned: Any) -> None:
        shapes = _shapes(found)
        if shapes in self._warned:
            return
        self._warned.add(shapes)
        log.warning(
            "%s: trained on a batch of %s without the placement, which is for %s.",
            self._what,
            shapes,
            _shapes(planned),
        )


@contextmanager
def placed_keras(
    placement: PlacementFile,
    *,
    devices: Mapping[str, str] | None = None,
    order: Order = "full",
    what: str = "the program",
) -> Iterator[KerasTraining]:
    """Apply a placement to the training step of the Keras model that trains within the context.

    Args:
        placement: a placement of the model's training step, as written by `capture`.
        devices: planned device -> TensorFlow device; by default `/device:GPU:0` for `GPU:0`. It may
            have more devices than the placement.
        order: "full" or "none", see `planned_changes`.
        what: names the program in errors.

    Raises:
        BadInputError: the first model that the program trains is not that of the placement, a model
            trains several steps in a call, or `place_function` raised it.
    """
    mapped = None if devices is None else of_placement(devices, placement.devices)
    training = KerasTraining(placement, mapped, order, what)
    with (
        raising_failure(training),
        placed_variables(placement, mapped),
        replaced_steps(training.step_of),
    ):
        yield training


def _shapes(specs: Any) -> str:
    flat = (spec for spec in tensorflow().nest.flatten(specs) if spec is not None)
    return ", ".join(str(spec.shape.as_list()) for spec in flat)
