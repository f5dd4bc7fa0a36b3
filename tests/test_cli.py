"""The command line: exit codes, messages, files, Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import Pesto, on_gpus, two_gpus
from placers import PLACERS

from pesto_cli import api, cli, kernels
from pesto_cli.cli import placing
from pesto_cli.data.graph import OpGraph, Tensor
from pesto_cli.data.problem import Problem
from pesto_cli.files import Profile, read_placement, read_profile, write_profile


def save(path: Path, problem: Problem) -> Path:
    write_profile(path, Profile(problem))
    return path


QUICK = ("--time-limit", 0.2, "--deterministic")


def test_solve_then_simulate_agree(pesto: Pesto, tmp_path: Path, diamond_profile: Path) -> None:
    placement = tmp_path / "p.json"
    solved = pesto("solve", diamond_profile, "-o", placement, *QUICK, "--json")
    assert solved.code == 0
    trace = tmp_path / "trace.json"
    simulated = pesto(
        "simulate", diamond_profile, "--placement", placement, "--json", "--trace", trace
    )
    assert json.loads(simulated.out)["makespan_us"] == json.loads(solved.out)["makespan_us"] == 14
    events = json.loads(trace.read_text())["traceEvents"]
    assert {event["name"] for event in events if event["ph"] == "X"} == set("abcd")
    assert max(event["ts"] + event["dur"] for event in events if event["ph"] == "X") == 14


def test_solve_is_deterministic_to_the_byte(
    pesto: Pesto, tmp_path: Path, diamond_profile: Path
) -> None:
    files = [tmp_path / name for name in ("1.json", "2.json")]
    for file in files:
        assert pesto("solve", diamond_profile, "-o", file, *QUICK, "--seed", 3).code == 0
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.parametrize("solver", ["cpsat", "cbc", "highs"])
def test_every_solver_finds_the_optimum_of_a_small_graph(
    pesto: Pesto, tmp_path: Path, diamond_profile: Path, solver: str
) -> None:
    if solver == "highs":
        pytest.importorskip("highspy")
    placement = tmp_path / "p.json"
    options = ("--solver", solver, "--time-limit", 6, "--quiet")
    assert pesto("solve", diamond_profile, "-o", placement, *options).code == 0
    assert read_placement(placement).predicted["makespan_us"] == 14


def test_compare_prints_a_row_for_each_strategy(pesto: Pesto, diamond_profile: Path) -> None:
    done = pesto("compare", diamond_profile, *QUICK, "--quiet")
    for word in ("single", "round-robin", "expert", "pesto", "bound us", "gap", "peak GPU:1"):
        assert word in done.out
    rows = json.loads(pesto("compare", diamond_profile, *QUICK, "--json").out)
    assert [row["strategy"] for row in rows] == PLACERS


def test_compare_leaves_out_a_strategy_that_splits_without_prices_of_parts(
    pesto: Pesto, tmp_path: Path, diamond_profile: Path
) -> None:
    why = "the profile has no prices of parts, or --max-parts 1 leaves none"
    compared = pesto("compare", diamond_profile, *QUICK)
    assert f"data-parallel is left out: {why}" in compared.err
    assert "data-parallel" not in compared.out
    for command in (
        ("compare", diamond_profile, "--strategies", "single,data-parallel"),
        ("solve", diamond_profile, "--strategy", "data-parallel", "-o", tmp_path / "p.json"),
    ):
        refused = pesto(*command, *QUICK)
        assert refused.code == 2
        assert why in refused.err
        assert "--parts 2,4,8" in refused.err
    assert not (tmp_path / "p.json").exists()


def test_compare_shows_a_placement_that_does_not_fit_and_solve_refuses_it(
    pesto: Pesto, tmp_path: Path
) -> None:
    graph = OpGraph.build(["a", "b"], resident_bytes=[3 * 2**30, 3 * 2**30])
    problem = on_gpus(graph, [1, 1], two_gpus(memory_bytes=4 * 2**30))
    profile = save(tmp_path / "heavy.json", problem)
    compared = pesto("compare", profile, "--strategies", "single,expert", *QUICK)
    assert "OOM: GPU:0 2.00 GiB short" in compared.out
    refused = pesto("solve", profile, "-o", tmp_path / "p.json", "--strategy", "single")
    assert refused.code == 3
    assert "GPU:0 2.00 GiB short" in refused.err
    assert "GPU:0 holds 6.00 GiB, 6.00 GiB of it variables; 4.00 GiB may be used." in refused.err
    rows = [line.split() for line in refused.err.splitlines()]
    assert ["b", "variable", "3.00", "GiB", "throughout"] in rows
    assert not (tmp_path / "p.json").exists()
    assert pesto("solve", profile, "-o", tmp_path / "p.json", *QUICK).code == 0


def test_json_lists_what_fills_a_device_that_is_short_of_memory(
    pesto: Pesto, tmp_path: Path
) -> None:
    graph = OpGraph.build(["a", "b"], [Tensor(0, 60, [1])], resident_bytes=[30, 0])
    profile = save(tmp_path / "p.json", on_gpus(graph, [5, 1], two_gpus(memory_bytes=80)))
    compared = pesto("compare", profile, "--strategies", "single", "--json", "--quiet")
    assert json.loads(compared.out)[0]["memory_peaks"] == [
        {
            "device": "GPU:0",
            "peak_bytes": 90,
            "capacity_bytes": 80,
            "at_us": 0,
            "resident_bytes": 30,
            "num_held": 2,
            "largest": [
                {"op": "a", "what": "output", "num_bytes": 60, "since_us": 0},
                {"op": "a", "what": "variable", "num_bytes": 30, "since_us": 0},
            ],
        }
    ]


def test_a_model_that_fits_no_device_exits_3(pesto: Pesto, tmp_path: Path) -> None:
    problem = on_gpus(OpGraph.build(["a"], resident_bytes=[100]), [1], two_gpus(memory_bytes=70))
    profile = save(tmp_path / "big.json", problem)
    refused = pesto("solve", profile, "-o", tmp_path / "p.json", *QUICK)
    assert refused.code == 3
    assert "op 'a' keeps 100 bytes of variables" in refused.err
    assert not (tmp_path / "p.json").exists()


def test_coarsen_writes_a_profile_that_solves(
    pesto: Pesto, tmp_path: Path, diamond_profile: Path
) -> None:
    coarse = tmp_path / "coarse.json"
    assert pesto("coarsen", diamond_profile, "-n", 2, "-o", coarse).code == 0
    profile = read_profile(coarse)
    assert profile.problem.num_ops == 2
    assert sorted(name for names in profile.members or [] for name in names) == list("abcd")
    assert pesto("solve", coarse, "-o", tmp_path / "p.json", *QUICK).code == 0


def test_warm_start_and_constraints(pesto: Pesto, tmp_path: Path, diamond_profile: Path) -> None:
    placement, constraints = tmp_path / "p.json", tmp_path / "c.toml"
    assert pesto("solve", diamond_profile, "-o", placement, *QUICK).code == 0
    warm = ("solve", diamond_profile, "-o", placement, "--warm-start", placement, *QUICK)
    assert pesto(*warm).code == 0
    constraints.write_text('[[pin]]\nops = "*"\ndevice = "GPU:1"\n')
    pinned = pesto("solve", diamond_profile, "-o", placement, "--constraints", constraints, *QUICK)
    assert pinned.code == 0
    assert set(read_placement(placement).device) == {2}


def test_comm_finds_the_parameters_of_made_up_samples(pesto: Pesto, tmp_path: Path) -> None:
    samples, fit = tmp_path / "samples.csv", tmp_path / "comm.json"
    rows = [f"GPU,GPU,{size},{40.77 + 2.0757e-5 * size}" for size in (1000, 10**6, 10**8)]
    samples.write_text("\n".join(["src kind,dst kind,bytes,us", *rows]))
    done = pesto("comm", "--from", samples, "-o", fit, "--json")
    assert done.code == 0
    row = json.loads(done.out)[0]
    assert row["comm"]["latency_us"] == pytest.approx(40.77, rel=1e-6)
    assert row["r_squared"] == pytest.approx(1)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("solve", "missing.json", "-o", "p.json"), "missing.json does not exist"),
        (("solve", "diamond", "-o", "no/such/p.json"), "create it first"),
        (("solve", "diamond", "-o", "p.json", "--strategy", "x"), "strategy 'x' is unknown"),
        (("solve", "diamond", "-o", "p.json", "--solver", "x"), "solver 'x' is unknown"),
        (("solve", "diamond", "-o", "p.json", "--time-limit", "0"), "--time-limit"),
        (("solve", "diamond", "-o", "p.json", "--time-limit", "nan"), "--time-limit is nan"),
        (("solve", "diamond"), "Missing option '-o'"),
        (("simulate", "diamond", "--placement", "diamond"), "'pesto-placement' was expected"),
        (("compare", "diamond", "--strategies", "a,b"), "strategy 'a' is unknown"),
        (("profile", "missing.meta", "-m", "v100x2-nvlink", "-o", "x"), "missing.meta"),
        (("export", "zoo:nothing", "-o", "x.meta"), "nothing"),
        (("export", "missing.pb", "-o", "x.meta"), "missing.pb"),
        (("fly",), "No such command"),
    ],
)
def test_bad_usage_and_input_exit_2_with_one_message(
    pesto: Pesto,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    diamond_profile: Path,
    argv: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.iterdir())
    done = pesto(*(str(diamond_profile) if word == "diamond" else word for word in argv))
    assert done.code == 2
    assert message in done.err
    assert done.out == ""
    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("argv", "meant"),
    [
        (("solve", "-o", "p.json", "--strategy", "pest"), "pesto"),
        (("solve", "-o", "p.json", "--solver", "highz"), "highs"),
        (("compare", "--strategies", "single,hft"), "heft"),
    ],
)
def test_a_misspelt_name_is_recognised_before_kernels_are_loaded(
    pesto: Pesto,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    diamond_profile: Path,
    argv: tuple[str, ...],
    meant: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(api, "warm_up", lambda: 1 / 0)
    command, *options = argv
    done = pesto(command, diamond_profile, *options)
    assert done.code == 2
    assert f"Did you mean {meant!r}?" in done.err


@pytest.mark.parametrize("are_cached", [False, True])
def test_compiling_is_announced_if_kernels_are_not_cached(
    pesto: Pesto, monkeypatch: pytest.MonkeyPatch, diamond_profile: Path, are_cached: bool
) -> None:
    monkeypatch.setattr(kernels, "are_cached", lambda: are_cached)
    done = pesto("compare", diamond_profile, "--strategies", "single")
    assert ("compiling kernels, once" in done.err) == (not are_cached)
    quiet = pesto("compare", diamond_profile, "--strategies", "single", "--quiet")
    assert "compiling" not in quiet.err


def test_a_bug_says_so_and_exits_123(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, diamond_profile: Path
) -> None:
    monkeypatch.setattr(sys, "argv", ["pesto", "compare", str(diamond_profile)])
    monkeypatch.setattr(placing, "asked", lambda *arguments: 1 / 0)
    with pytest.raises(SystemExit) as exit_:
        cli.main()
    assert exit_.value.code == 123
    assert "bug in pesto" in capsys.readouterr().err


def grid(width: int, depth: int) -> Problem:
    """An LSTM-like grid, too large to be solved at once."""
    names = [f"layer_{row}/op_{column}" for row in range(width) for column in range(depth)]
    tensors = []
    for row in range(width):
        for column in range(depth):
            below = [(row + 1) * depth + column] if row + 1 < width else []
            after = [row * depth + column + 1] if column + 1 < depth else []
            tensors.append(Tensor(row * depth + column, 10_000, below + after))
    times = np.random.default_rng(0).integers(5, 50, len(names)).astype(float).tolist()
    return on_gpus(OpGraph.build(names, tensors), times)


def test_ctrl_c_writes_the_best_so_far_and_exits_130(tmp_path: Path) -> None:
    profile, placement = save(tmp_path / "grid.json", grid(6, 60)), tmp_path / "p.json"
    command = [sys.executable, "-c", "from pesto_cli.cli import main; main()", "solve"]
    process = subprocess.Popen(
        [*command, str(profile), "-o", str(placement), "--time-limit", "100", "--workers", "1"],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ,
    )
    assert process.stderr is not None
    lines = iter(process.stderr.readline, "")
    assert any(" ms " in line for line in lines)  # the first may say that kernels are compiled
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the best schedule so far is in" in err
    found = read_placement(placement).match(read_profile(profile).problem)
    assert len(found.device) == 360


def test_solving_works_where_tensorflow_was_imported_first(diamond_profile: Path) -> None:
    script = f"""
import tensorflow
from pathlib import Path
from pesto_cli import api as pesto
limits = pesto.Limits(time_limit_s=1, deterministic=True)
profile = pesto.read_profile(Path({str(diamond_profile)!r}))
result = pesto.solve(profile, "pesto", pesto.Context(limits))
print(result.makespan_us)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert float(done.stdout) == 14


def test_an_order_that_fits_is_found_if_another_order_reaches_the_bound(
    pesto: Pesto, tmp_path: Path
) -> None:
    # a -> b and c -> d, 60 bytes each: 120 bytes if both are alive at once, 60 one after the other.
    graph = OpGraph.build(["a", "c", "b", "d"], [Tensor(0, 60, [2]), Tensor(1, 60, [3])])
    machine = two_gpus(memory_bytes=100)
    both = on_gpus(graph, [1, 1, 1, 1], machine)
    permitted = np.ones_like(both.permitted)
    permitted[:, 2] = False
    profile, constraints = save(tmp_path / "p.json", both), tmp_path / "c.toml"
    constraints.write_text('[[pin]]\nops = "*"\ndevice = "GPU:0"\n')
    output = ("-o", tmp_path / "placed.json", "--constraints", constraints)
    done = pesto("solve", profile, *output, *QUICK, "--json")
    assert done.code == 0
    assert json.loads(done.out)["peak_bytes"]["GPU:0"] == 60
    assert json.loads(done.out)["status"] == "optimal"


def test_a_failed_search_without_a_proof_of_infeasibility_exits_4(
    pesto: Pesto, tmp_path: Path
) -> None:
    # More tensors are alive at once than fit, but no single op needs them all.
    graph = OpGraph.build(
        list("abcde"),
        [Tensor(0, 60, [3]), Tensor(1, 60, [4]), Tensor(2, 60, [3]), Tensor(3, 60, [4])],
        control_edges=[(0, 1), (1, 2)],
        colocation_group=[0] * 5,
    )
    profile = save(tmp_path / "p.json", on_gpus(graph, [1] * 5, two_gpus(memory_bytes=190)))
    refused = pesto("solve", profile, "-o", tmp_path / "placed.json", *QUICK)
    assert refused.code == 4
    assert "more time may find one that fits" in refused.err
    assert not (tmp_path / "placed.json").exists()


def test_the_input_is_never_overwritten(pesto: Pesto, diamond_profile: Path) -> None:
    before = diamond_profile.read_bytes()
    for verb in ("solve", "coarsen"):
        refused = pesto(verb, diamond_profile, "-o", diamond_profile)
        assert refused.code == 2
        assert "is also an input or another output, and would be lost" in refused.err
    assert diamond_profile.read_bytes() == before
    for option in ("--constraints", "--weights"):
        refused = pesto("solve", diamond_profile, "-o", "rules.toml", option, "rules.toml")
        assert refused.code == 2
        assert "rules.toml is also an input" in refused.err


def test_an_output_that_cannot_be_written_is_refused_before_the_work(
    pesto: Pesto, tmp_path: Path, diamond_profile: Path
) -> None:
    # These devices would take long to start, or do not exist, but the output is checked first.
    for argv in (
        ("solve", diamond_profile),
        ("comm", "--machine", "local-workers:64"),
        ("profile", tmp_path / "missing.meta", "--machine", "local-workers:64"),
        ("simulate", diamond_profile, "--placement", "p.json", "--trace"),
    ):
        last = () if argv[-1] == "--trace" else ("-o",)
        refused = pesto(*argv, *last, "/proc/none.json")
        assert (refused.code, "/proc/none.json cannot be written" in refused.err) == (5, True)
        refused = pesto(*argv, *last, tmp_path / "none" / "x.json")
        assert (refused.code, "none does not exist" in refused.err) == (2, True)


@pytest.mark.parametrize(
    ("path", "words"),
    [("", "the path is empty; the path of a file"), ("-", "use /dev/stdin or /dev/stdout, or ./-")],
)
def test_paths_that_name_no_file_are_refused(
    pesto: Pesto, diamond_profile: Path, path: str, words: str
) -> None:
    for arguments in (("solve", diamond_profile, "-o", path), ("solve", path, "-o", "a.json")):
        refused = pesto(*arguments)
        assert refused.code == 2
        assert words in " ".join(refused.err.split())


def test_a_list_has_every_strategy_once(pesto: Pesto, diamond_profile: Path) -> None:
    for listed, message in (
        ("single,,expert", "'single,,expert' has an empty entry"),
        ("", "'' has an empty entry; all, or some of single"),
        ("single,expert,single", "names single twice"),
    ):
        refused = pesto("compare", diamond_profile, "--strategies", listed)
        assert (refused.code, message in refused.err) == (2, True)
    spaced = pesto("compare", diamond_profile, "--strategies", "single, expert", *QUICK)
    assert (spaced.code, "expert" in spaced.out) == (0, True)


def test_a_closed_stderr_does_not_stop_the_search(tmp_path: Path, diamond_profile: Path) -> None:
    placement = tmp_path / "p.json"
    announce = "from pesto_cli import kernels; kernels.are_cached = lambda: False"
    script = f"{announce}; from pesto_cli.cli import main; main()"
    command = f"{sys.executable} -c '{script}' solve {diamond_profile} -o {placement}"
    shell = f"{command} --time-limit 1 --deterministic 2>&1 | true"
    subprocess.run(["bash", "-c", shell], check=True)
    assert read_placement(placement).predicted["makespan_us"] == 14


def test_a_lower_bound_is_never_above_the_makespan(pesto: Pesto, tmp_path: Path) -> None:
    times = np.random.default_rng(0).random(30) * 1e4
    graph = OpGraph.build(
        [str(op) for op in range(30)], [Tensor(op, 8, [op + 1]) for op in range(29)]
    )
    profile = save(tmp_path / "chain.json", on_gpus(graph, times.tolist()))
    for row in json.loads(pesto("compare", profile, *QUICK, "--json").out):
        assert row["lower_bound_us"] <= row["makespan_us"]
        assert row["gap"] == 1 - row["lower_bound_us"] / row["makespan_us"]
