"""The rows of FastT's tables: models with their batches, and machines."""

from collections.abc import Sequence
from dataclasses import dataclass

from pesto_cli.bench.experiment import ExperimentRequest
from pesto_cli.bench.machine_variant import MachineVariant
from pesto_cli.bench.models import BenchModel
from pesto_cli.bench.published import published

SERVER, TWO_SERVERS = "v100x8-nvlink", "2x8-v100"
LENGTH = 64  # of sentences, as FastT says for BERT


@dataclass(frozen=True)
class Cluster:
    """The GPUs of a column: name of the column, number of GPUs, machine."""

    name: str
    num_gpus: int
    machine: MachineVariant


ONE = Cluster("1", 1, MachineVariant(preset=SERVER, num_gpus=1))
IN_ONE_SERVER = tuple(
    Cluster(str(count), count, MachineVariant(preset=SERVER, num_gpus=count)) for count in (2, 4, 8)
)
STRONG: tuple[Cluster, ...] = (
    *IN_ONE_SERVER,
    Cluster("4+4", 8, MachineVariant(preset=TWO_SERVERS, gpus_of_host=4)),
)
WEAK: tuple[Cluster, ...] = (
    *IN_ONE_SERVER,
    Cluster("8+8", 16, MachineVariant(preset=TWO_SERVERS)),
)


@dataclass(frozen=True)
class Row:
    """A model of FastT.

    title: as FastT calls it. zoo: its name in the zoo. batch: samples on one GPU.
    unit: how many samples, as FastT counts them, are one of the zoo's: words of a sentence.
    arguments: further arguments of the zoo's model.
    """

    title: str
    zoo: str
    batch: int
    unit: int = 1
    arguments: str = ""

    def model(self, times: int = 1) -> str:
        """Return the name of the model with `times` the batch."""
        return f"{self.zoo}@batch={times * self.batch}{self.arguments}"


_BATCHES = published("fastt_strong")["batch"]
# FastT gives neither the sizes of RNNLM and Transformer nor the length of a Transformer's sentence:
# these are the RNNLM of Pesto, and the base model of Vaswani et al. with 64 words a sentence.
ROWS: Sequence[Row] = (
    *(Row(name, name, _BATCHES[name]) for name in ("Inception-v3", "VGG-19", "ResNet-200")),
    *(Row(name, name, _BATCHES[name]) for name in ("LeNet", "AlexNet", "GNMT-4")),
    Row("RNNLM", "RNNLM-2-2048", _BATCHES["RNNLM"]),
    Row(
        "Transformer",
        "Transformer-6-8-512",
        _BATCHES["Transformer"] // LENGTH,
        LENGTH,
        f",length={LENGTH},inner=2048",
    ),
    Row("BERT-large", "BERT-large", _BATCHES["BERT-large"], arguments=f",length={LENGTH}"),
)


def asked_rows(request: ExperimentRequest, rows: Sequence[Row] = ROWS) -> list[Row]:
    """Return the rows whose models were asked for."""
    names = {model.name for model in request.models}
    return [row for row in rows if row.model() in names]


def model_of(request: ExperimentRequest, name: str) -> BenchModel:
    """Return a model of a request by its name."""
    return next(model for model in request.models if model.name == name)
