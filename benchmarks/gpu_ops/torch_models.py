"""Time training steps in PyTorch: `python -m benchmarks.gpu_ops.torch_models RESULT`.

The sums of op times are compared with them. Steps are replayed in CUDA graphs, with TF32.

The layers, sizes and optimisers are those of `pesto_cli/zoo`; the kernels are PyTorch's choice, so
it runs fewer kernels for a loss, a GELU or an optimiser than a graph of TensorFlow has ops. Each
model is timed with the batch of the zoo, and with a half, a quarter and an eighth of it.
"""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as nn
from torch.nn import (
    BatchNorm2d,
    Conv2d,
    Embedding,
    Flatten,
    Linear,
    MaxPool2d,
    Module,
    ModuleList,
    ReLU,
    Sequential,
)

from benchmarks.gpu_ops.timing import call_us


def vgg_19(batch: int) -> Module:
    """VGG-19 with 224 x 224 images."""
    layers: list[Module] = []
    inward = 3
    for width, count in ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4)):
        for _ in range(count):
            layers += [Conv2d(inward, width, 3, padding=1), ReLU()]
            inward = width
        layers.append(MaxPool2d(2))
    layers += [Flatten(), Linear(512 * 7 * 7, 4096), ReLU(), Linear(4096, 4096), ReLU()]
    return Classifier(Sequential(*layers, Linear(4096, 1000)), batch)


class Unit(Module):
    """A bottleneck unit of ResNet v2."""

    def __init__(self, inward: int, filters: int, stride: int) -> None:
        super().__init__()
        width = 4 * filters
        self.stride, self.before = stride, BatchNorm2d(inward)
        self.shortcut = Conv2d(inward, width, 1, stride) if inward != width else None
        self.layers = Sequential(
            *(Conv2d(inward, filters, 1, bias=False), BatchNorm2d(filters), ReLU()),
            *(Conv2d(filters, filters, 3, stride, 1, bias=False), BatchNorm2d(filters), ReLU()),
            Conv2d(filters, width, 1),
        )

    def forward(self, images: Any) -> Any:
        """Return the shortcut plus the residual."""
        normal = nn.relu(self.before(images))
        if self.shortcut is not None:
            kept = self.shortcut(normal)
        else:
            kept = nn.max_pool2d(images, 1, self.stride) if self.stride > 1 else images
        return kept + self.layers(normal)


def resnet_200(batch: int) -> Module:
    """ResNet-200 v2 with 224 x 224 images."""
    layers: list[Module] = [Conv2d(3, 64, 7, 2, 3), MaxPool2d(3, 2, 1)]
    inward = 64
    for stage, count in enumerate((3, 24, 36, 3)):
        for unit in range(count):
            stride = 2 if unit == count - 1 and stage < 3 else 1
            layers.append(Unit(inward, 64 * 2**stage, stride))
            inward = 4 * 64 * 2**stage
    model = Sequential(*layers, BatchNorm2d(inward), ReLU())
    return Classifier(Sequential(model, Mean(), Linear(inward, 1000)), batch)


class Mean(Module):
    """The mean over rows and columns."""

    def forward(self, images: Any) -> Any:
        """Return [batch, filters]."""
        return images.mean((2, 3))


class Classifier(Module):
    """A model in NHWC with a batch of random images."""

    images: Any
    labels: Any

    def __init__(self, model: Module, batch: int) -> None:
        super().__init__()
        self.model = model.to(memory_format=torch.channels_last)
        images = torch.randn(batch, 3, 224, 224).to(memory_format=torch.channels_last)
        self.register_buffer("images", images)
        self.register_buffer("labels", torch.randint(1000, (batch,)))

    def forward(self) -> Any:
        """Return the loss."""
        return nn.cross_entropy(self.model(self.images), self.labels)


class Rnnlm(Module):
    """Stacked LSTM layers, unrolled over time, with a softmax for each step."""

    tokens: Any
    targets: Any

    def __init__(self, layers: int, hidden: int, batch: int, steps: int, words: int) -> None:
        super().__init__()
        self.hidden, self.steps = hidden, steps
        self.embedding, self.softmax = Embedding(words, hidden), Linear(hidden, words)
        self.layers = ModuleList([Linear(2 * hidden, 4 * hidden) for _ in range(layers)])
        for name in ("tokens", "targets"):
            self.register_buffer(name, torch.randint(words, (batch, steps)))

    def forward(self) -> Any:
        """Return the loss."""
        outputs = list(self.embedding(self.tokens).unbind(1))
        for layer in self.layers:
            cell = output = torch.zeros_like(outputs[0])
            for step, vectors in enumerate(outputs):
                gates = layer(torch.cat((vectors, output), 1))
                entering, candidate, forgetting, leaving = gates.chunk(4, 1)
                kept = torch.sigmoid(forgetting + 1.0) * cell
                cell = kept + torch.sigmoid(entering) * torch.tanh(candidate)
                output = torch.sigmoid(leaving) * torch.tanh(cell)
                outputs[step] = output
        losses = [
            nn.cross_entropy(self.softmax(output), self.targets[:, step])
            for step, output in enumerate(outputs)
        ]
        return sum(losses)


def rnnlm_2_2048(batch: int) -> Module:
    """RNNLM-2-2048."""
    return Rnnlm(2, 2048, batch, 20, 10_000)


def sgd(model: Module) -> Any:
    return torch.optim.SGD(model.parameters(), 1e-6, fused=True)


def momentum(model: Module) -> Any:
    return torch.optim.SGD(model.parameters(), 1e-6, momentum=0.9, fused=True)


MODELS: Mapping[str, tuple[Callable[[int], Module], int, Callable[[Module], Any]]] = {
    "RNNLM-2-2048": (rnnlm_2_2048, 128, sgd),
    "VGG-19": (vgg_19, 64, momentum),
    "ResNet-200": (resnet_200, 32, momentum),
}
"""Models, their batches and optimisers."""
NUMBERS_OF_PARTS = (1, 2, 4, 8)


def training_step(name: str, device: str, num_parts: int = 1) -> Callable[[], Any]:
    """Return a function that runs one training step of a model: loss, gradients and updates.

    num_parts: by how much the batch is divided.
    """
    build, batch, optimiser_of = MODELS[name]
    model = build(batch // num_parts).to(device)
    optimiser = optimiser_of(model)

    def step() -> Any:
        optimiser.zero_grad(set_to_none=True)
        value = model()
        value.backward()
        optimiser.step()
        return value

    return step


def main(arguments: Sequence[str] | None = None) -> None:
    """Time the steps in ms, and write the times, or the errors, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("result", type=Path)
    options = parser.parse_args(arguments)
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    found: dict[str, dict[int, float | str]] = {name: {} for name in MODELS}
    for name, num_parts in product(MODELS, NUMBERS_OF_PARTS):
        try:
            step_ms = call_us(training_step(name, "cuda", num_parts), [()]) / 1e3
            found[name][num_parts] = step_ms
        except Exception as error:  # one model must not end the measurement
            found[name][num_parts] = f"{type(error).__name__}: {error}"[:300]
        torch.cuda.empty_cache()
        print(name, num_parts, found[name][num_parts], flush=True)
        options.result.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
