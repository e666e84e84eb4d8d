"""Write the page that defines the perturbations, from the catalogues.

    python -m launch.perturbations [--out=docs/perturbations.md]

A test compares the page with what this command writes.
"""

from pathlib import Path

from absl import flags

from launch.common import cli

OUT = flags.DEFINE_string("out", "docs/perturbations.md", "Page to write.")


def main() -> None:
    from launch.common import perturbation_page

    Path(OUT.value).write_text(perturbation_page.page(), "utf-8")
    print(OUT.value)


if __name__ == "__main__":
    cli.run(main)
