"""Communication models fitted to timed transfers."""

import json
import logging
from dataclasses import replace

import numpy as np
import pytest

from pesto_cli.cluster import Connection
from pesto_cli.data.machine import CommModel, Device, Link, Machine
from pesto_cli.data.presets import PRESETS
from pesto_cli.errors import BadInputError
from pesto_cli.files import CommFit, read_comm, with_comm, write_comm
from pesto_cli.profile.comm import Sample, fit, fit_overhead, read_samples
from pesto_cli.profile.comm.chains import Effort
from pesto_cli.profile.comm.overhead import (
    TransferOverheads,
    median_overhead_us,
    num_products,
    transfer_overheads,
)
from pesto_cli.report.charts import write_chart
from pesto_cli.report.comm_checks import comm_checks
from pesto_cli.report.comm_plot import comm_chart
from pesto_cli.report.layouts import plain_text
from pesto_cli.report.tables import comm_table

NO_LOSS = CommModel(7.0, 1e-4)
SIZES = (4, 1_000, 50_000, 1_000_000, 20_000_000)


def timed(src, dst, latency_us, us_per_byte, noise_us=()):
    noise_us = noise_us or [0.0] * len(SIZES)
    return [
        Sample(src, dst, size, latency_us + us_per_byte * size + noise)
        for size, noise in zip(SIZES, noise_us, strict=True)
    ]


def test_times_on_a_line_give_this_line():
    samples = timed("GPU", "GPU", 40.77, 2.0757e-5) + timed("CPU", "GPU", 7.0, 7.7778e-5)
    gpu, cpu = fit(samples)
    assert (gpu.src_kind, gpu.dst_kind, cpu.src_kind, cpu.dst_kind) == ("GPU", "GPU", "CPU", "GPU")
    assert gpu.comm.latency_us == pytest.approx(40.77)
    assert gpu.comm.us_per_byte == pytest.approx(2.0757e-5)
    assert cpu.comm.latency_us == pytest.approx(7.0)
    assert (gpu.r_squared, gpu.num_samples) == (pytest.approx(1.0), len(SIZES))


def test_noisy_times_give_the_least_squares_line_of_relative_errors():
    samples = timed("GPU", "GPU", 30.0, 1e-4, noise_us=(5.0, -3.0, 8.0, -9.0, 2.0))
    (found,) = fit(samples)
    num_bytes, us = np.array([(sample.num_bytes, sample.us) for sample in samples]).T
    slope, intercept = np.polyfit(num_bytes, us, 1, w=1 / us)
    assert found.comm.us_per_byte == pytest.approx(slope)
    assert found.comm.latency_us == pytest.approx(intercept)
    residuals = us - np.polyval((slope, intercept), num_bytes)
    assert found.r_squared == pytest.approx(1 - (residuals**2).mean() / us.var())


def test_a_disturbed_large_transfer_does_not_change_the_latency():
    samples = timed("CPU", "CPU", 150.0, 7e-4, noise_us=(0.0, 0.0, 0.0, 0.0, 3000.0))
    (found,) = fit(samples)
    assert found.comm.latency_us == pytest.approx(150.0, rel=0.02)


def test_a_transfer_of_0_us_is_weighted_like_one_of_1_us():
    (found,) = fit([Sample("GPU", "GPU", 1, 0.0), Sample("GPU", "GPU", 10**6, 100.0)])
    assert found.comm == CommModel(pytest.approx(0.0, abs=1e-3), pytest.approx(1e-4, rel=1e-3))


def test_a_line_with_negative_latency_is_fitted_again_through_the_origin(caplog):
    samples = [Sample("CPU", "GPU", 1000, 1.0), Sample("CPU", "GPU", 2000, 4.0)]
    (found,) = fit(samples)
    assert found.comm == CommModel(0.0, pytest.approx(1500 / 1.25e6), 0.0)
    assert "CPU -> GPU" in caplog.text
    assert "through the origin" in caplog.text


def test_a_bad_fit_causes_a_warning(caplog):
    sizes, us = [1000, 2000, 3000, 4000], [10.0, 30.0, 12.0, 31.0]
    (found,) = fit(Sample("GPU", "GPU", *pair) for pair in zip(sizes, us, strict=True))
    assert found.r_squared < 0.9
    assert "fits the times badly" in caplog.text


def test_a_good_fit_causes_no_message(caplog):
    with caplog.at_level(logging.INFO):
        fit(timed("GPU", "GPU", 40.77, 2.0757e-5))
    assert not caplog.records


def test_equal_times_give_a_latency_and_no_time_per_byte():
    (found,) = fit([Sample("GPU", "GPU", 10, 5.0), Sample("GPU", "GPU", 20, 5.0)])
    assert found.comm == CommModel(5.0, 0.0)
    assert found.r_squared == 1.0


def test_times_that_fall_by_rounding_are_equal():
    (found,) = fit([Sample("GPU", "GPU", 10, 5.0), Sample("GPU", "GPU", 2**20, 5.0 - 1e-15)])
    assert found.comm == CommModel(pytest.approx(5.0), 0.0)


def test_one_size_is_too_few():
    with pytest.raises(BadInputError, match=r"GPU -> GPU .*the same size, 1000 bytes"):
        fit([Sample("GPU", "GPU", 1000, 10.0), Sample("GPU", "GPU", 1000, 11.0)])


def test_transfers_that_get_faster_with_their_size_are_refused():
    with pytest.raises(BadInputError, match="less time the larger they are"):
        fit([Sample("GPU", "GPU", 1000, 10.0), Sample("GPU", "GPU", 2000, 9.0)])


def test_overheads_on_a_line_give_this_line_for_both_directions():
    assert fit_overhead((size, 40.0 + 3e-4 * size) for size in SIZES) == pytest.approx((40.0, 3e-4))
    there, back = ([(4, us), (10**6, us + 100)] for us in (30.0, 30.0))
    assert fit_overhead(there + back) == pytest.approx((30.0, 1e-4), rel=1e-3)


def test_a_fitted_overhead_is_never_negative():
    fixed_us, us_per_byte = fit_overhead([(4, 0.0), (2**16, 0.0), (2**20, 400.0)])
    assert fixed_us == 0.0
    assert us_per_byte > 0
    assert fit_overhead([(4, 30.0), (2**20, 20.0)]) == (pytest.approx(23.08, abs=0.01), 0.0)
    assert fit_overhead([(4, 0.0), (2**20, 0.0)]) == (0.0, 0.0)
    assert fit_overhead([]) == (0.0, 0.0)


def test_an_overhead_is_the_median_difference_of_pairs_divided_by_the_transfers():
    assert median_overhead_us([900.0, 5000.0, 1900.0], [700.0, 800.0, 1500.0], count=4) == 100.0
    assert median_overhead_us([700.0], [800.0], count=4) == 0.0


def test_products_before_a_tensor_take_longer_than_its_transfer():
    transfer_us = {1: 100.0, 2**20: 1100.0, 2**22: 4100.0}
    assert num_products(2**22, transfer_us, product_us=500.0) == 2.5 * 4100 / 500 + 0.5
    assert num_products(4, {1: 1.0, 2**22: 2.0}, product_us=500.0) == 8
    assert num_products(2**22, {1: 1e6, 2**22: 1e7}, product_us=500.0) == 200


def test_a_gpu_has_no_transfer_overhead():
    nowhere = Connection("", {})
    assert (
        transfer_overheads(nowhere, "/device:GPU:0", "/device:CPU:0", {}, Effort(1))
        == TransferOverheads()
    )


def test_fitted_models_are_equal_after_writing_and_reading_and_apply_to_a_machine(tmp_path):
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
def test_a_damaged_file_of_samples_is_refused_naming_the_line(tmp_path, text, message):
    path = tmp_path / "transfers.csv"
    path.write_text(text)
    with pytest.raises(BadInputError, match=message):
        read_samples(path)


def test_a_binary_file_of_samples_is_refused(tmp_path):
    path = tmp_path / "transfers.csv"
    path.write_bytes(b"\xff\xfe\x00us")
    with pytest.raises(BadInputError, match="is not text"):
        read_samples(path)


def test_a_fit_for_links_that_the_machine_lacks_is_refused():
    fits = [replace(found, src_kind="TPU") for found in fit(timed("GPU", "GPU", 12.0, 1e-5))]
    with pytest.raises(BadInputError, match="TPU"):
        with_comm(PRESETS["v100x2-nvlink"], fits)


def cpus(*names: str, channel: str = "") -> Machine:
    devices = tuple(Device(name, "CPU", 2**30) for name in names)
    links = tuple(
        Link(src, dst, CommModel(1.0, 1e-4), channel and f"{channel} {src[0]}")
        for src in names
        for dst in names
        if src != dst
    )
    return Machine(devices, links)


def test_signals_and_checks_are_equal_after_writing_and_reading(tmp_path):
    path = tmp_path / "links.comm.json"
    fits = [
        CommFit("CPU", "CPU", CommModel(140.0, 5e-4), 0.9, 28, "out of b", 130.5, 2.1, 1.7),
        CommFit("CPU", "CPU", CommModel(90.0, 5e-4)),
    ]
    write_comm(path, fits)
    assert read_comm(path) == fits


def test_a_file_without_signals_and_checks_is_read(tmp_path):
    path = tmp_path / "links.comm.json"
    link = {"src_kind": "CPU", "dst_kind": "GPU", "latency_us": 7.0, "us_per_byte": 1e-4}
    path.write_text(json.dumps({"format": "pesto-comm", "version": 1, "links": [link]}))
    assert read_comm(path) == [CommFit("CPU", "GPU", CommModel(7.0, 1e-4))]


@pytest.mark.parametrize(("both_ways", "num_channels"), [(1.1, 6), (1.9, 3), (None, 6)])
def test_directions_that_delay_each_other_get_one_channel(both_ways, num_channels):
    fits = [CommFit("CPU", "CPU", CommModel(140.0, 5e-4), both_ways=both_ways)]
    machine = with_comm(cpus("a", "b", "c"), fits)
    assert len(machine.channel_names) == num_channels
    there, back = machine.channel[0, 1], machine.channel[1, 0]
    assert (there == back) == (num_channels == 3)


def test_directions_that_do_not_delay_each_other_get_separate_channels():
    fits = [CommFit("CPU", "CPU", CommModel(140.0, 5e-4), both_ways=1.0)]
    joined = with_comm(cpus("a", "b"), [replace(fits[0], both_ways=2.0)])
    assert len(joined.channel_names) == 1
    assert len(with_comm(joined, fits).channel_names) == 2


def test_a_shared_channel_has_its_own_fit_and_remains():
    machine = cpus("a", "b", "c", channel="out of")
    fits = [
        CommFit("CPU", "CPU", CommModel(10.0, 1e-4), channel="out of a", both_ways=2.0),
        CommFit("CPU", "CPU", CommModel(20.0, 1e-4), both_ways=2.0),
    ]
    found = with_comm(machine, fits)
    assert found.channel_names == machine.channel_names
    assert found.latency_us[0].tolist() == [0.0, 10.0, 10.0]
    assert found.latency_us[1].tolist() == [20.0, 0.0, 20.0]


def test_the_signal_delay_of_a_machine_is_the_mean_over_its_links():
    machine = PRESETS["v100x2-nvlink"]
    fits = [
        CommFit("GPU", "GPU", CommModel(10.0, 1e-4), signal_us=12.0),
        CommFit("CPU", "GPU", CommModel(10.0, 1e-4), signal_us=6.0),
        CommFit("GPU", "CPU", CommModel(10.0, 1e-4)),
    ]
    assert with_comm(machine, fits).signal_us == 9.0
    assert with_comm(machine, fits[2:]).signal_us == machine.signal_us


def test_a_chart_shows_every_transfer_and_the_residuals_of_the_line(tmp_path):
    samples = [*timed("GPU", "GPU", 40.0, 2e-5), Sample("CPU", "CPU", 1000, 150.0, "out of a")]
    samples.append(Sample("CPU", "CPU", 10**6, 900.0, "out of a"))
    chart = comm_chart(samples, fit(samples))
    drawn = chart.to_dict()
    times, residuals = (part["layer"][1]["data"] for part in drawn["vconcat"])
    points = drawn["datasets"][times["name"]]
    assert [point["us"] for point in points] == [sample.us for sample in samples]
    assert residuals == times
    assert max(abs(point["residual"]) for point in points) < 1e-6
    assert {point["link"] for point in points} == {"GPU → GPU", "CPU → CPU, out of a"}
    for name in ("links.svg", "links.png", "links.html", "links.json"):
        write_chart(tmp_path / name, chart)
    assert "GPU → GPU: 40 us + 20 us per MB, R² 1.000" in (tmp_path / "links.svg").read_text()
    assert (tmp_path / "links.png").read_bytes().startswith(b"\x89PNG")


def test_a_chart_in_an_unknown_format_is_refused(tmp_path):
    samples = timed("GPU", "GPU", 40.0, 2e-5)
    with pytest.raises(BadInputError, match=r"links.pdf.* \.svg, \.png"):
        write_chart(tmp_path / "links.pdf", comm_chart(samples, fit(samples)))


def test_checks_compare_links_with_the_model():
    measured = CommFit("CPU", "CPU", CommModel(140.0, 5e-4), 0.9, 28, "", 130.4, 2.1, 1.8)
    assert comm_checks([measured, CommFit("CPU", "GPU", CommModel(7.0, 1e-4))]).splitlines() == [
        "CPU -> CPU: a control edge takes 130.4 us",
        "CPU -> CPU: two transfers at once take 2.10 times as long as one; the model assumes 2",
        "CPU -> CPU: two transfers in opposite directions take 1.80 times as long as one, so the "
        "two directions share one channel; the model assumes 2",
    ]
    card = replace(measured, channel="out of a", two_at_once=1.25, both_ways=1.1)
    assert comm_checks([card]).splitlines()[1:] == [
        "CPU -> CPU (out of a): two transfers at once take 1.25 times as long as one; the model "
        "assumes 2 (+60%)",
        "CPU -> CPU (out of a): two transfers in opposite directions take 1.10 times as long as "
        "one; the model assumes 1",
    ]


LOSING = CommModel(
    120.0, 3e-4, 0.0, sender_us=62.0, sender_us_per_byte=3.5e-4, receiver_us=65.0, wait_us=3500.0
)


def test_transfer_overheads_are_in_the_table_and_in_the_text():
    fits = [CommFit("CPU", "CPU", LOSING, channel="out of a"), CommFit("CPU", "GPU", NO_LOSS)]
    shown = plain_text(comm_table("links", fits))
    header, _, there, _ = (line.split() for line in shown.splitlines()[2:6])
    columns = "sender overhead us us per MB receiver overhead us us per MB"
    assert " ".join(header).endswith(columns)
    assert there[-4:] == ["62.000", "350.000", "65.000", "0.000"]
    assert "CPU -> CPU (out of a)" in shown
    assert comm_checks(fits) == (
        "CPU -> CPU (out of a): a transfer of 100 kB delays an op that runs on the sender by "
        "97 us, and one on the receiver by 65 us\n"
        "CPU -> CPU (out of a): a sender or receiver that computes delays a tensor by up to 3.5 ms"
    )


def test_without_transfer_overheads_table_and_text_do_not_mention_them():
    fits = [CommFit("CPU", "GPU", NO_LOSS)]
    assert "loses" not in plain_text(comm_table("links", fits))
    assert comm_checks(fits) == ""


def test_the_command_fits_and_draws_a_file_of_samples(tmp_path, pesto):
    samples, fit_file, plot = (tmp_path / name for name in ("t.csv", "fit.json", "fit.svg"))
    rows = [f"CPU,GPU,{size},{20 + size / 1e4}" for size in (1, 10**4, 10**6)]
    samples.write_text("\n".join(["src_kind,dst_kind,bytes,us", *rows]))
    done = pesto("comm", "--from", samples, "-o", fit_file, "--plot", plot)
    assert done.code == 0
    assert "20.000" in done.out
    assert read_comm(fit_file)[0].comm.latency_us == pytest.approx(20)
    assert "us per MB" in plot.read_text()


def test_the_command_needs_either_a_machine_or_samples(tmp_path, pesto):
    for given, found in (
        ((), "neither --machine nor --from was given"),
        (("--from", "a.csv", "--machine", "local-workers:2"), "both were given"),
    ):
        refused = pesto("comm", *given, "-o", tmp_path / "fit.json")
        assert refused.code == 2
        assert found in refused.err
