"""Variables, and the ops that read and write them. A variable is whole, and is written once."""

from pesto_cli.sharding.alternative import Rule
from pesto_cli.sharding.rules.constants import stays_whole

_OPTIMISERS = """
    AdaMax Adadelta Adagrad AdagradDA AdagradV2 Adam AdamWithAmsgrad AddSign CenteredRMSProp Ftrl
    FtrlV2 GradientDescent KerasMomentum Momentum PowerSign ProximalAdagrad ProximalGradientDescent
    RMSProp
"""
_SCATTERS = """
    ScatterAdd ScatterDiv ScatterMax ScatterMin ScatterMul ScatterNdAdd ScatterNdMax ScatterNdMin
    ScatterNdSub ScatterNdUpdate ScatterSub ScatterUpdate StridedSliceAssign
"""
_OTHERS = """
    Assign AssignAdd AssignAddVariableOp AssignSub AssignSubVariableOp AssignVariableOp
    DestroyResourceOp IsVariableInitialized ReadVariableOp VarHandleOp VarIsInitializedOp Variable
    VariableShape VariableV2
"""
_UPDATES = [
    f"{prefix}{optimiser}"
    for prefix in ("Apply", "ResourceApply", "SparseApply", "ResourceSparseApply")
    for optimiser in _OPTIMISERS.split()
]
_WRITES = [f"{prefix}{scatter}" for prefix in ("", "Resource") for scatter in _SCATTERS.split()]

RULES: dict[str, Rule] = dict.fromkeys((*_UPDATES, *_WRITES, *_OTHERS.split()), stays_whole)
