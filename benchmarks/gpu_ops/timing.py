"""Time cases on this machine's GPU: `python -m benchmarks.gpu_ops.timing CASES RESULT`.

It needs PyTorch and no TensorFlow. The calls of a case are captured as a CUDA graph and replayed,
so that the time of PyTorch on the host is not measured. Each call has other operands than the calls
before it, so that large ones are not in the GPU's cache. Of each case it measures

- `us`: with TF32, as TensorFlow computes products and convolutions of float32 by default;
- `float32_us`: without TF32, in a second round over the products of matrices.
"""

import argparse
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import torch

from benchmarks.gpu_ops.torch_kernels import KERNELS, Call, Case

REPLAYS, FEWEST_CALLS, MOST_CALLS = 7, 4, 32
CACHES = 3
"""The operands of a round of calls are so many times as large as the cache, if the limits of calls
and bytes allow it."""
MOST_BYTES = 8 * 2**30
PRODUCTS = ("MatMul", "BatchMatMulV2")


def main(arguments: Sequence[str] | None = None) -> None:
    """Time the cases in order until the time is over, and write the times as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", type=Path)
    parser.add_argument("result", type=Path)
    parser.add_argument("--time-limit", type=float, default=480.0, help="in s")
    parser.add_argument("--device", default="cuda", help="cpu: run each call once, without times")
    options = parser.parse_args(arguments)
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True  # TensorFlow also times the algorithms first
    described = json.loads(options.cases.read_text())["cases"]
    fields = ("type", "attributes", "inputs", "outputs")
    cases = [
        Case(**{key: each[key] for key in fields}, device=options.device) for each in described
    ]
    deadline_s, found = time.monotonic() + options.time_limit, []
    for case in until(deadline_s, cases):
        found.append(timed(case))
        if "error" in found[-1]:
            print(case.type, [each["shape"] for each in case.inputs], found[-1], flush=True)
    for case, times in until(deadline_s, list(zip(cases, found, strict=False))):
        if "us" in times and case.type in PRODUCTS:
            times["float32_us"] = timed(case, tf32=False).get("us")
    about = ceilings() if options.device == "cuda" else {"device": options.device}
    kept = ("type", "compute_us", "memory_us", "runs")
    rows = [
        {
            **{key: each[key] for key in kept},
            "shapes": [one["shape"] for one in each["inputs"]],
            **times,
        }
        for each, times in zip(described, found, strict=False)
    ]
    lines = ",\n".join(json.dumps(row) for row in rows)
    options.result.write_text(f'{json.dumps(about)[:-1]}, "cases": [\n{lines}\n]}}\n')
    print(about)


T = TypeVar("T")


def until(deadline_s: float, items: Sequence[T]) -> Iterator[T]:
    """Yield items until a deadline, and say how many there were."""
    for number, item in enumerate(items):
        if time.monotonic() > deadline_s:
            print(f"the time is over after {number} of {len(items)} cases", flush=True)
            return
        yield item
    print(f"{len(items)} cases, {deadline_s - time.monotonic():.0f} s left", flush=True)


def timed(case: Case, tf32: bool = True) -> dict[str, Any]:
    """Return the times of a case, or its error."""
    if case.type not in KERNELS:
        return {"error": "no kernel"}
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    try:
        with torch.no_grad():
            call = KERNELS[case.type](case)
            if case.device == "cpu":
                call(*operands(case))
                return {}
            return {"us": call_us(call, [operands(case) for _ in range(num_sets(case))])}
    except Exception as error:  # one op must not end the measurement
        return {"error": f"{type(error).__name__}: {error}"[:300]}
    finally:
        if case.device == "cuda":
            torch.cuda.empty_cache()


def operands(case: Case) -> list[Any]:
    """Return input tensors with random values; those of constants have their values."""
    return [operand(case, slot) for slot in range(len(case.inputs))]


def operand(case: Case, slot: int) -> Any:
    given, shape = case.inputs[slot], case.shape(slot)
    if given["value"] is not None:
        return torch.tensor(given["value"], device=case.device)
    if given["dtype"] == "resource":  # second moments are not negative
        return torch.rand(shape, device=case.device)
    return torch.randn(shape, device=case.device)


def num_sets(case: Case) -> int:
    """Return how many sets of operands fill the cache several times."""
    num_bytes = sum(4 * prod(each["shape"]) for each in (*case.inputs, *case.outputs)) + 1
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    return int(max(1, min(-(-CACHES * cache // num_bytes), MOST_BYTES // num_bytes, MOST_CALLS)))


def call_us(call: Call, sets: Sequence[Sequence[Any]]) -> float:
    """Return the median time of a call in us."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            call(*sets[0])
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    rounds = -(-FEWEST_CALLS // len(sets))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(rounds):
            for each in sets:
                call(*each)
    graph.replay()
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(REPLAYS)]
    for start, end in events:
        start.record()
        graph.replay()
        end.record()
    torch.cuda.synchronize()
    times_ms = [start.elapsed_time(end) for start, end in events]
    return 1e3 * float(median(times_ms)) / (rounds * len(sets))


def ceilings() -> Mapping[str, Any]:
    """Return the name of the GPU, and what it reaches with the largest operands."""
    properties = torch.cuda.get_device_properties(0)
    torch.backends.cuda.matmul.allow_tf32 = True
    a, b = (torch.randn(8192, 8192, device="cuda") for _ in range(2))
    tf32_us = call_us(torch.mm, [(a, b)])
    torch.backends.cuda.matmul.allow_tf32 = False
    float32_us = call_us(torch.mm, [(a, b)])
    large, other = (torch.randn(2**29, device="cuda") for _ in range(2))
    copy_us = call_us(lambda x, y: y.copy_(x), [(large, other)])
    tiny = torch.randn(16, device="cuda")
    return {
        "device": properties.name,
        "pytorch": torch.__version__,
        "tf32_tflops": 2 * 8192**3 / tf32_us / 1e6,
        "float32_tflops": 2 * 8192**3 / float32_us / 1e6,
        "copy_gb_s": 2 * 4 * 2**29 / copy_us / 1e3,
        "tiny_us": call_us(torch.neg, [(tiny,)] * MOST_CALLS),
    }


if __name__ == "__main__":
    main()
