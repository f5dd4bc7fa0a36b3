"""Every alternative of every sharding rule computes what the whole op computes."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sharding_cases import CASES
from sharding_ops import Case
from sharding_programs import prove
from sharding_tensors import part_sizes

from pesto_cli.sharding.rules import RULES, alternatives
from pesto_cli.sharding.rules.constants import stays_whole

# Op types of which only copies are made.
NEVER_SPLIT = {op_type for op_type, rule in RULES.builtin.items() if rule is stays_whole}


def test_every_rule_has_a_proof() -> None:
    assert set(RULES.builtin) == set(CASES)


@pytest.mark.parametrize("op_type", CASES)
def test_parts_compute_what_the_op_computes(op_type: str) -> None:
    seen = set()

    @settings(
        max_examples=25, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(CASES[op_type], st.data())
    def proved(case: Case, data: st.DataObject) -> None:
        assert case.spec.type == op_type
        for alternative in alternatives(case.spec):
            prove(case, alternative, data.draw(part_sizes(alternative.size), alternative.name))
            seen.add(alternative.name)

    proved()
    assert seen - {"replicated"} or op_type in NEVER_SPLIT, "no case can be split"


@pytest.mark.parametrize("op_type", CASES)
def test_alternatives_have_different_names(op_type: str) -> None:
    @settings(max_examples=5, deadline=None, database=None)
    @given(CASES[op_type])
    def named(case: Case) -> None:
        names = [alternative.name for alternative in alternatives(case.spec)]
        assert len(set(names)) == len(names)

    named()
