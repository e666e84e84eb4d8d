"""Trace some steps of a run, for XProf and Perfetto."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

Step = Callable[[Any], tuple[Any, Any]]


def traced(step: Step, steps: range, done: int, folder: Path) -> Step:
    """Return a step that writes a trace of some of its calls.

    TensorBoard with the plugin XProf opens the folder, and ui.perfetto.dev opens the
    `perfetto_trace.json.gz` in it. A trace that is cut off by the end of the run is not
    written.

    Args:
      step: `state -> (state, metrics)`.
      steps: the numbers of the steps that are traced; the first step of a run is 1.
      done: number of steps that were done before.
      folder: where the trace is written.
    """
    if not steps:
        return step

    is_tracing = False

    def call(state: Any) -> tuple[Any, Any]:
        nonlocal done, is_tracing
        done += 1
        if done in steps and not is_tracing:  # a run may be resumed among these steps
            is_tracing = True
            jax.block_until_ready(state)
            jax.profiler.start_trace(str(folder), create_perfetto_trace=True)
        if done not in steps:
            return step(state)
        with jax.profiler.StepTraceAnnotation("step", step_num=done):
            made = step(state)
        if done == steps[-1]:
            jax.block_until_ready(made)
            jax.profiler.stop_trace()
        return made

    return call
