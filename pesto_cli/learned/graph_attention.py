"""HeteroG's network: graph attention over ops, then attention over groups of ops.

Source: Yi et al., "Optimizing Distributed Training Deployment in Heterogeneous GPU Clusters",
CoNEXT '20, Section 4.1. The embedding of an op o is that of its neighbours N_o, o included, by K
heads (Velickovic et al., ICLR '18, Eq. 1 to 5):

    e_o = ||_k elu(sum over j in N_o of a_oj W_k e_j),  a_oj = softmax_j(leaky_relu(<s, W_k e_o> +
                                                                                  <t, W_k e_j>))

The embedding of a group is elu(sum over its ops of W e_o). The strategy network is Transformer-XL
(Dai et al., ACL '19, Section 3.3) over all groups in topological order: the score of groups i and j
is <q_i + u, k_j> + <q_i + v, R(i - j)>, with sinusoids R. All groups are one segment here, so there
is no recurrence between segments. The paper leaves the width of the layers open.

In comments on shapes, V are ops, E edges, N groups, U units, K heads.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.learned.network import Array, Network

# The ways to replicate a group: even or proportional, with parameter servers or an all-reduce.
NUM_WAYS = 4
# The inner layer of the feed-forward part of Transformer-XL, in units.
INNER = 2
EPSILON = 1e-6


@dataclass(frozen=True)
class GraphAttention(Network):
    """The network; the actions are the devices, then the ways to replicate.

    Inputs: features of ops, `[V, num_features]`; edges, `[E, 2]`, from an op to one that attends to
    it; the group of each op, `[V]`; allowed actions, `[N, A]`.

    units: the width of each layer, a multiple of `heads`. layers, heads: of the graph attention.
    strategy_layers: of Transformer-XL.
    separate_heads: HeteroG's program has one output for M devices, even and proportional replicas,
        and one for the aggregation. The paper has one output of M + 4 actions.
    """

    name: ClassVar[str] = "graph attention"
    is_sequential: ClassVar[bool] = False
    layers: int
    heads: int
    strategy_layers: int
    separate_heads: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.heads or self.units % self.heads:
            raise ValueError(f"{self.units} units are no multiple of {self.heads} heads")

    def shapes(self, num_features: int, num_devices: int) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yield the name and the shape of each array of weights."""
        units, of_head = self.units, (self.units // self.heads, self.heads)
        for layer in range(self.layers):
            yield f"graph_{layer}/kernel", (units if layer else num_features, units)
            yield f"graph_{layer}/receiver", of_head
            yield f"graph_{layer}/sender", of_head
        yield "groups", (units if self.layers else num_features, units)
        for layer in range(self.strategy_layers):
            for name in ("query", "key", "value", "distance", "attended"):
                yield f"strategy_{layer}/{name}", (units, units)
            for name in ("key_bias", "distance_bias"):
                yield f"strategy_{layer}/{name}", (units,)
            yield f"strategy_{layer}/inner", (units, INNER * units)
            yield f"strategy_{layer}/outer", (INNER * units, units)
        yield "output", (units, num_devices + NUM_WAYS)
        yield "preference", (num_devices + NUM_WAYS,)

    def log_probabilities(self, weights: Any, inputs: Any, chosen: Any) -> Any:
        """Return the log-probabilities, which are the same for all placements, `[N, B, A]`."""
        tf = tensorflow()
        found = self._distributions(weights, inputs)[:, None]
        return tf.repeat(found, chosen.shape[1], axis=1)

    def sample(self, weights: Any, inputs: Any, noise: Any) -> Any:
        """Return actions that are drawn from the policy, `[N, B]`."""
        tf = tensorflow()
        logits = self._distributions(weights, inputs)[:, None]
        return tf.argmax(logits + noise, axis=2, output_type=tf.int32)

    def _distributions(self, weights: Any, inputs: Any) -> Any:
        """Return the log-probabilities of all actions, `[N, A]`."""
        tf, (ops, edges, group_of, allowed) = tensorflow(), inputs
        for layer in range(self.layers):
            ops = self._neighbours(weights, f"graph_{layer}", ops, edges)
        groups = tf.math.unsorted_segment_sum(ops @ weights["groups"], group_of, allowed.shape[0])
        groups = _normalised(tf.nn.elu(groups))
        for layer in range(self.strategy_layers):
            groups = self._strategy(weights, f"strategy_{layer}", groups)
        logits = groups @ weights["output"]
        if self.separate_heads:
            logits = _joint(logits)
        return tf.nn.log_softmax(logits + weights["preference"] + allowed)

    def _neighbours(self, weights: Any, layer: str, ops: Any, edges: Any) -> Any:
        """Return the next embeddings of the ops, `[V, U]`."""
        tf, num_ops = tensorflow(), ops.shape[0]
        values = self._by_head(ops @ weights[f"{layer}/kernel"])
        receiver, sender = (
            tf.einsum("vdk,dk->vk", values, weights[f"{layer}/{end}"])
            for end in ("receiver", "sender")
        )
        scores = tf.nn.leaky_relu(tf.gather(receiver, edges[:, 1]) + tf.gather(sender, edges[:, 0]))
        largest = tf.math.unsorted_segment_max(scores, edges[:, 1], num_ops)
        shares = tf.exp(scores - tf.gather(largest, edges[:, 1]))
        sums = tf.math.unsorted_segment_sum(shares, edges[:, 1], num_ops)
        shares /= tf.gather(sums, edges[:, 1])
        sent = tf.gather(values, edges[:, 0]) * shares[:, None]
        attended = tf.math.unsorted_segment_sum(sent, edges[:, 1], num_ops)
        return tf.nn.elu(tf.reshape(attended, (num_ops, self.units)))

    def _strategy(self, weights: Any, layer: str, groups: Any) -> Any:
        """Return the next embeddings of the groups, `[N, U]`: a layer of Transformer-XL."""
        tf = tensorflow()

        def of(name: str, values: Any) -> Any:
            return self._by_head(values @ weights[f"{layer}/{name}"])

        query, key, value = (of(name, groups) for name in ("query", "key", "value"))
        distance = of("distance", _sinusoids(groups.shape[0], self.units))
        biases = (
            tf.reshape(weights[f"{layer}/{name}"], query.shape[1:])
            for name in ("key_bias", "distance_bias")
        )
        to_key, to_distance = (query + bias for bias in biases)
        scores = tf.einsum("ndk,mdk->knm", to_key, key)
        scores += _shifted(tf.einsum("ndk,mdk->knm", to_distance, distance))
        shares = tf.nn.softmax(scores / np.sqrt(query.shape[1]))
        attended = tf.reshape(tf.einsum("knm,mdk->ndk", shares, value), groups.shape)
        groups = _normalised(groups + attended @ weights[f"{layer}/attended"])
        inner = tf.nn.relu(groups @ weights[f"{layer}/inner"])
        return _normalised(groups + inner @ weights[f"{layer}/outer"])

    def _by_head(self, values: Any) -> Any:
        """Return values of all heads, `[., U]`, as `[., U / K, K]`."""
        tf = tensorflow()
        return tf.reshape(values, (values.shape[0], self.units // self.heads, self.heads))


def _joint(logits: Any) -> Any:
    """Return logits of the actions, `[N, A]`, from separate ones of replication and aggregation.

    logits: of the devices, even and proportional replicas, parameter servers and all-reduce.
    """
    tf = tensorflow()
    devices, replicas, aggregation = tf.split(logits, (logits.shape[1] - NUM_WAYS, 2, 2), axis=1)
    both = replicas[:, :, None] + tf.nn.log_softmax(aggregation)[:, None]
    return tf.concat((devices, tf.reshape(both, (-1, NUM_WAYS))), axis=1)


def _normalised(values: Any) -> Any:
    """Return rows of mean 0 and variance 1 (Ba et al., 2016), without gains and biases."""
    tf = tensorflow()
    mean, variance = tf.nn.moments(values, axes=[-1], keepdims=True)
    return (values - mean) * tf.math.rsqrt(variance + EPSILON)


def _sinusoids(num_groups: int, units: int) -> Array:
    """Return the encodings of the distances from N - 1 down to 1 - N, `[2 N - 1, U]`."""
    distance = np.arange(num_groups - 1, -num_groups, -1.0)
    angle = distance[:, None] / 1e4 ** (np.arange(0, units, 2) / units)
    return np.concatenate((np.sin(angle), np.cos(angle)), axis=1)[:, :units].astype(np.float32)


def _shifted(scores: Any) -> Any:
    """Return the scores by pairs, `[K, N, N]`, from those by distance, `[K, N, 2 N - 1]`.

    Source: Dai et al., Appendix B. Pair (i, j) has the distance i - j.
    """
    tf, (num_heads, number, width) = tensorflow(), scores.shape
    padded = tf.pad(scores, ((0, 0), (0, 0), (1, 0)))
    rows = tf.reshape(padded, (num_heads, width + 1, number))[:, 1:]
    return tf.reshape(rows, (num_heads, number, width))[:, :, :number]
