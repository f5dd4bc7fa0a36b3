"""Analytic op times of a GPU against measured ones, on a GPU machine without TensorFlow.

    python -m benchmarks.gpu_ops.cases cases.json               # anywhere: the ops to time
    python -m benchmarks.gpu_ops.timing cases.json H100.json    # on the GPU; needs PyTorch only
    python -m benchmarks.gpu_ops.table H100.json                # anywhere: the tables

A case is an op of a model of the zoo, with its shapes and attributes. It is timed as the call of
PyTorch that launches the same kind of kernel: cuBLAS and cuDNN do the products and convolutions of
both frameworks (`torch_kernels`).

The measured times in this folder are of 2026-11-26, with an H100 and an H200. They are the union of
two runs on H100s: float32 was measured in the first one, everything else in the second one. Cases
have no time if their call was changed after the last run on that GPU.
"""
