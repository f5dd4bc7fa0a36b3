"""Train a Keras model and a graph in the style of TensorFlow 1 on two workers of this host."""

from pathlib import Path

from pesto_cli import api as pesto

EXAMPLES = Path(__file__).parent

for script in ("train_keras.py", "two_towers.py"):
    with pesto.runner(f"{EXAMPLES / script}:build", "local-workers:2", time_limit_s=1) as runner:
        losses = runner.run(steps=20).losses
        print(f"{script}: loss {losses[0]:.3f} to {losses[-1]:.3f}")
        runner.save(f"build/{script.removesuffix('.py')}")
