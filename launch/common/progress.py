"""Say what a command is doing, on standard error.

On a terminal it is a bar with the current stage; elsewhere each stage is one line.
"""

import sys

from tqdm import tqdm


class Stages:
    """A sequence of stages, some of which have steps.

    >>> stages = Stages(num_steps=2)
    >>> stages.begin("reading")
    >>> stages.step("the first half"); stages.step("the second half"); stages.end()
    """

    def __init__(self, num_steps: int):
        """
        Args:
          num_steps: the number of steps of all stages together.
        """
        self._bar = tqdm(
            total=num_steps,
            disable=not sys.stderr.isatty(),
            leave=False,
            bar_format="{desc} {bar} {n_fmt}/{total_fmt} {elapsed}",
        )

    def begin(self, stage: str) -> None:
        """Begin a stage."""
        if self._bar.disable:
            print(stage, file=sys.stderr, flush=True)
        else:
            self._bar.set_description_str(stage)

    def step(self, name: str) -> None:
        """Count a step that is done."""
        if not self._bar.disable:
            self._bar.update()
            self._bar.set_description_str(name)  # writes the bar, with the new count

    def end(self) -> None:
        self._bar.close()
