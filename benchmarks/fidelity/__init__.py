"""Predicted and measured step times: `python -m benchmarks.fidelity --comm FIT [MODEL]...`.

Each model of `models` is profiled by real steps on two workers of this host, placed by several
strategies, and run with all placements alternately. The prediction is the makespan of a replay in
the simulator, plus the step overhead that the profile measured. The results are written as JSON,
and printed as the tables of docs/running.md:
- the errors of the predictions, and those relative to that of one device. If the machine has
  changed its speed since the profile, all placements of a model have this error;
- the errors in quiet steps: those in which both cores had their full speed (`probed_steps`);
- the regret of pesto's own placements: by how much their measured steps are longer than the
  shortest of the model;
- the causes of the errors (`causes`).
"""

MACHINE = "local-workers:2"
