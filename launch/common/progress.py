"""Say what a command is doing, on standard error.

On a terminal it is a bar. Elsewhere each stage is a line, and a bar is written again
every half a minute.
"""

import sys

from tqdm import tqdm

DELAY_S = 30.0  # an evaluation that is shorter shows nothing
EVERY_S = 30.0  # until a bar is written again where there is no terminal


def episodes(total: int, disable: bool = False) -> tqdm:
    """Return a bar that counts the episodes of an evaluation.

    Args:
      total: the number of episodes.
      disable: whether nothing is shown, as by all processes but the first.

    >>> with episodes(16) as bar:
    ...     bar.update(8)
    """
    return tqdm(
        desc="evaluation",
        total=total,
        unit="episode",
        delay=DELAY_S,
        mininterval=0.1 if sys.stderr.isatty() else EVERY_S,
        leave=False,
        disable=disable,
    )


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
