"""Write the page that defines the perturbations, from the catalogues.

    python -m launch.perturbations [--out=docs/perturbations.md]
    python -m launch.perturbations --measure    play the simple agents again first

A test compares the page with what this command writes. The success of the simple agents
is kept in docs/results; playing them takes some minutes.
"""

import json
from pathlib import Path

from absl import flags

from launch.common import cli
from openagent_jax import files

OUT = flags.DEFINE_string("out", "docs/perturbations.md", "Page to write.")
MEASURE = flags.DEFINE_bool(
    "measure", False, "Play simple agents, and keep the result."
)
STORED = flags.DEFINE_string(
    "stored", "docs/results/simple_agents.json", "Stored results of the simple agents."
)


def main() -> None:
    from launch.pages import perturbation_page

    stored = Path(STORED.value)
    if MEASURE.value:
        import openagent_jax
        from launch.common import tokenizer_files
        from launch.pages import simple_agents_table

        folder = Path(openagent_jax.__file__).parent / "backbones/nano"
        made = simple_agents_table.measure(tokenizer_files.tokenizer(folder))
        with files.replacing(stored) as part:
            part.write_text(json.dumps(made, indent=1) + "\n", "utf-8")
    text = perturbation_page.page(stored)
    with files.replacing(Path(OUT.value)) as part:
        part.write_text(text, "utf-8")
    print(OUT.value)


if __name__ == "__main__":
    cli.run(main)
