"""Write the policy of a run, with adapters merged, as a folder for `transformers`.

python -m launch.export --workdir=runs/paft --out=exported
"""

import json
from pathlib import Path

from absl import flags

from launch.common import cli

WORKDIR = flags.DEFINE_string("workdir", None, "The workdir of the run.")
OUT = flags.DEFINE_string("out", None, "The folder to write.")
STEP = flags.DEFINE_string("step", "latest", "latest, best, or a step of the run.")


def main() -> None:
    from launch.common import backbones, lineage
    from openagent_jax.models import hf, lora

    folder = Path(str(OUT.value))
    if (folder / "checkpoints").exists():
        raise cli.UsageError(
            f"--out={folder} is the workdir of a run, whose config.json would be "
            f"replaced; give another folder, such as {folder / 'export'}"
        )
    model, params, step = backbones.restore(Path(str(WORKDIR.value)), STEP.value)
    params = lora.merge(model.config.lora, params)
    trained_on = json.dumps([*model.trained_on], indent=2) + "\n"
    more = {lineage.FILE: trained_on}
    hf.save(folder, model.config, params, model.folder, more)
    print(f"{folder}: step {step}")


if __name__ == "__main__":
    cli.run(main, required=("workdir", "out"))
