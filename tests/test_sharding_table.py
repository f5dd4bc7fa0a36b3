"""The tables of sharding rules contain every op type, and the layouts of its alternatives."""

import re

from shell_blocks import DOCS

from pesto_cli.data.specs import Operand, OpSpec
from pesto_cli.sharding.rules import RULES
from pesto_cli.sharding.rules.table import FIRST_LINE, families, layouts, with_families


def test_every_op_type_is_in_one_row_that_states_its_factors() -> None:
    rows = [line.strip("| ").split(" | ") for line in families().splitlines()[2:]]
    types = [op_type for *_, listed in rows for op_type in re.findall(r"`(\w+)`", listed)]
    assert sorted(types) == sorted(RULES.builtin)
    assert all(factors for _, factors, _ in rows)


def test_the_page_on_splitting_has_the_table_of_the_rules() -> None:
    page = (DOCS / "splitting.md").read_text()
    remedy = "python -m pesto_cli.sharding.rules.table docs/splitting.md"
    assert FIRST_LINE in page
    assert page == with_families(page), f"make the table again: {remedy}"


def test_the_layouts_of_an_op_are_listed_by_factor() -> None:
    labels, logits = Operand((8,), "int32"), Operand((8, 10), "float32")
    op_type = "SparseSoftmaxCrossEntropyWithLogits"
    spec = OpSpec(op_type, (), (logits, labels), (Operand((8,), "float32"), logits))
    assert layouts(spec).splitlines() == [
        "| factor | inputs | outputs |",
        "| --- | --- | --- |",
        "| batch | split 0, split 0 | split 0, split 0 |",
        "| replicated | whole, whole | replicated, replicated |",
    ]
