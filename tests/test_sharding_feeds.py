"""A fed tensor is in host memory; its slices may be cut on the devices of their consumers."""

from typing import Any

import numpy as np
from training_graphs import exported

from pesto_cli import api
from pesto_cli.data.plan import Choice, Plan
from pesto_cli.profile import profile
from pesto_cli.sharding.problems import rewritten


def fed(tf: Any) -> list[Any]:
    data = tf.compat.v1.placeholder(tf.float32, [64, 8], name="data")
    return [tf.exp(data, name="exp")]


def test_a_fed_tensor_is_cut_on_gpus_if_the_cut_has_a_time_only_there() -> None:
    problem = profile(exported(fed), api.read_machine("v100x2-nvlink"), parts=(2,)).problem
    new = rewritten(problem, Plan({"exp": Choice("axis 0", (32, 32))})).problem
    cut = new.graph.names.index("data.split_0_2")
    gpu, cpu = new.kinds.index("GPU"), new.kinds.index("CPU")
    assert np.isnan(problem.time_us[problem.graph.names.index("data"), gpu])
    assert new.time_us[cut, gpu] > 0
    assert np.isnan(new.time_us[cut, cpu])
