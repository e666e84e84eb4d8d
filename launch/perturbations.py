"""Write the page that defines the perturbations, from the catalogues.

    python -m launch.perturbations [--page=docs/perturbations.md]

A test compares the page with what this command writes.
"""

from pathlib import Path

from absl import flags

from launch.common import cli

PAGE = flags.DEFINE_string("page", "docs/perturbations.md", "The page to write.")


def main() -> None:
    from launch.common import perturbation_page

    Path(PAGE.value).write_text(perturbation_page.page(), "utf-8")
    print(PAGE.value)


if __name__ == "__main__":
    cli.run(main)
