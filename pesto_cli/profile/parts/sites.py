"""The devices and the memory of ops that are not in a graph yet."""

from dataclasses import replace

from pesto_cli.data.specs import OpSpec
from pesto_cli.errors import InfeasibleError
from pesto_cli.graphdef.devices import Devices
from pesto_cli.graphdef.signature import OpDefs
from pesto_cli.graphdef.spec_nodes import node_def
from pesto_cli.graphdef.tensorflow import tensorflow


class LooseSites:
    """Finds the device types that can run a spec."""

    def __init__(self) -> None:
        self._devices = Devices(OpDefs(tensorflow().compat.v1.GraphDef().library))

    def located(self, spec: OpSpec) -> tuple[OpSpec, frozenset[str]]:
        """Return a spec with `on_host` of its operands, and the device types that can run it."""
        try:
            site = self._devices.site(node_def("op", spec, ()))
        except InfeasibleError:
            return spec, frozenset()
        inputs = (
            replace(operand, on_host=on_host)
            for operand, on_host in zip(spec.inputs, site.host_inputs, strict=True)
        )
        outputs = (
            replace(operand, on_host=on_host)
            for operand, on_host in zip(spec.outputs, site.host_outputs, strict=True)
        )
        return replace(spec, inputs=tuple(inputs), outputs=tuple(outputs)), site.device_types
