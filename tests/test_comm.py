"""Communication models fitted to timed transfers."""

import logging
from dataclasses import replace

import numpy as np
import pytest

from pesto_cli.errors import BadInputError
from pesto_cli.files import read_comm, with_comm, write_comm
from pesto_cli.machine import PRESETS, CommModel
from pesto_cli.profile.comm import Sample, fit, read_samples

SIZES = (4, 1_000, 50_000, 1_000_000, 20_000_000)


def timed(src, dst, latency_us, us_per_byte, noise_us=()):
    noise_us = noise_us or [0.0] * len(SIZES)
    return [
        Sample(src, dst, size, latency_us + us_per_byte * size + noise)
        for size, noise in zip(SIZES, noise_us, strict=True)
    ]


def test_times_on_a_line_give_the_line():
    samples = timed("GPU", "GPU", 40.77, 2.0757e-5) + timed("CPU", "GPU", 7.0, 7.7778e-5)
    gpu, cpu = fit(samples)
    assert (gpu.src_kind, gpu.dst_kind, cpu.src_kind, cpu.dst_kind) == ("GPU", "GPU", "CPU", "GPU")
    assert gpu.comm.latency_us == pytest.approx(40.77)
    assert gpu.comm.us_per_byte == pytest.approx(2.0757e-5)
    assert cpu.comm.latency_us == pytest.approx(7.0)
    assert (gpu.r_squared, gpu.num_samples) == (pytest.approx(1.0), len(SIZES))


def test_noisy_times_give_the_least_squares_line():
    samples = timed("GPU", "GPU", 30.0, 1e-4, noise_us=(5.0, -3.0, 8.0, -9.0, 2.0))
    (found,) = fit(samples)
    slope, intercept = np.polyfit([s.num_bytes for s in samples], [s.us for s in samples], 1)
    assert found.comm.us_per_byte == pytest.approx(slope)
    assert found.comm.latency_us == pytest.approx(intercept)
    correlation = np.corrcoef([s.num_bytes for s in samples], [s.us for s in samples])[0, 1]
    assert found.r_squared == pytest.approx(correlation**2)


def test_a_line_below_zero_is_fitted_again_through_the_origin(caplog):
    samples = [Sample("CPU", "GPU", 1000, 1.0), Sample("CPU", "GPU", 2000, 4.0)]
    (found,) = fit(samples)
    assert found.comm == CommModel(0.0, pytest.approx(9000 / 5e6), 0.0)
    assert "CPU -> GPU" in caplog.text
    assert "through the origin" in caplog.text


def test_a_line_that_explains_little_is_reported(caplog):
    sizes, us = [1000, 2000, 3000, 4000], [10.0, 30.0, 12.0, 31.0]
    (found,) = fit(Sample("GPU", "GPU", *pair) for pair in zip(sizes, us, strict=True))
    assert 0 < found.r_squared < 0.9
    assert "explains little" in caplog.text


def test_a_good_line_is_fitted_in_silence(caplog):
    with caplog.at_level(logging.INFO):
        fit(timed("GPU", "GPU", 40.77, 2.0757e-5))
    assert not caplog.records


def test_equal_times_give_a_pure_latency():
    (found,) = fit([Sample("GPU", "GPU", 10, 5.0), Sample("GPU", "GPU", 20, 5.0)])
    assert found.comm == CommModel(5.0, 0.0)
    assert found.r_squared == 1.0


def test_one_size_is_too_few():
    with pytest.raises(BadInputError, match=r"GPU -> GPU .*one size of 1000 bytes"):
        fit([Sample("GPU", "GPU", 1000, 10.0), Sample("GPU", "GPU", 1000, 11.0)])


def test_transfers_that_get_faster_with_their_size_are_refused():
    with pytest.raises(BadInputError, match="less the larger they are"):
        fit([Sample("GPU", "GPU", 1000, 10.0), Sample("GPU", "GPU", 2000, 9.0)])


def test_fitted_models_survive_their_file_and_reach_the_machine(tmp_path):
    path = tmp_path / "links.comm.json"
    fits = fit(timed("GPU", "GPU", 12.0, 1e-5))
    write_comm(path, fits)
    assert read_comm(path) == fits
    machine = with_comm(PRESETS["v100x2-nvlink"], read_comm(path))
    gpu0, gpu1, cpu = (machine.index_of[name] for name in ("GPU:0", "GPU:1", "CPU:0"))
    assert machine.latency_us[gpu0, gpu1] == pytest.approx(12.0)
    assert machine.latency_us[cpu, gpu0] == 7.0


def test_samples_are_read_with_columns_in_any_order(tmp_path):
    path = tmp_path / "transfers.csv"
    path.write_text("us, bytes,src kind,dst_kind\n1.5,1e3,CPU,GPU\n\n2,2000 ,GPU,GPU\n")
    assert read_samples(path) == [Sample("CPU", "GPU", 1000, 1.5), Sample("GPU", "GPU", 2000, 2.0)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "columns src_kind,dst_kind,bytes,us were expected"),
        ("src_kind,dst_kind,bytes,us\n", "no transfers"),
        ("src_kind,dst_kind,bytes\nCPU,GPU,1\n", "were expected"),
        ("src_kind,dst_kind,bytes,us,us\nCPU,GPU,1,2,3\n", "were expected"),
        ("src_kind,dst_kind,bytes,us\nCPU,GPU,1,2\nCPU,GPU,1\n", "line 3: 3 cells"),
        ("src_kind,dst_kind,bytes,us\nCPU,GPU,1,fast\n", "line 2: us is 'fast'"),
        ("src_kind,dst_kind,bytes,us\nCPU,GPU,1,-2\n", "line 2: us is '-2'"),
        ("src_kind,dst_kind,bytes,us\nCPU,GPU,1,inf\n", "line 2: us is 'inf'"),
        ("src_kind,dst_kind,bytes,us\nCPU,GPU,1.5,2\n", "whole bytes"),
        ("src_kind,dst_kind,bytes,us\n,GPU,1,2\n", "line 2: no src_kind"),
        (f"src_kind,dst_kind,bytes,us\n{'C' * 200_000},GPU,1,2\n", "line 2: field larger"),
    ],
)
def test_a_damaged_file_of_samples_is_refused_with_the_line(tmp_path, text, message):
    path = tmp_path / "transfers.csv"
    path.write_text(text)
    with pytest.raises(BadInputError, match=message):
        read_samples(path)


def test_a_binary_file_of_samples_is_refused(tmp_path):
    path = tmp_path / "transfers.csv"
    path.write_bytes(b"\xff\xfe\x00us")
    with pytest.raises(BadInputError, match="is not text"):
        read_samples(path)


def test_a_fit_for_other_links_than_the_machines_is_refused():
    fits = [replace(found, src_kind="TPU") for found in fit(timed("GPU", "GPU", 12.0, 1e-5))]
    with pytest.raises(BadInputError, match="TPU"):
        with_comm(PRESETS["v100x2-nvlink"], fits)
