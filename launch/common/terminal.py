"""Read lines from a person: with completion on a terminal, plainly elsewhere."""

import os
import sys
from collections.abc import Callable, Iterator

from launch.common import errors, game
from openagent_jax.agents import person

Complete = Callable[[str], Iterator[person.Completion]]


def reader() -> game.Reader:
    """Return a reader: with completion on a terminal, plain elsewhere.

    Raises:
      UsageError: standard input is a terminal, and prompt_toolkit is not installed.
    """
    return _of_terminal() if sys.stdin.isatty() else _plain


async def _plain(prompt: str, complete: Complete) -> str:
    """Read a line of standard input, and print it, so that the output is a session."""
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    print(f"{prompt}{line.rstrip()}", flush=True)
    return line


def _of_terminal() -> game.Reader:
    with errors.needs_extra("launch.play in a terminal", "play"):
        import prompt_toolkit
        from prompt_toolkit import completion, key_binding, output

    class Completer(completion.Completer):
        def __init__(self, complete: Complete):
            self._complete = complete

        def get_completions(self, document, complete_event):
            for x in self._complete(document.text_before_cursor):
                yield completion.Completion(
                    x.text, start_position=-x.length, display_meta=x.about
                )

    bindings = key_binding.KeyBindings()

    @bindings.add("tab")
    def complete_now(event):
        """Insert the only completion at once, also if Enter is typed ahead."""
        buffer = event.current_buffer
        document = buffer.document
        found = list(buffer.completer.get_completions(document, None))
        if buffer.complete_state:
            buffer.complete_next()
        elif len(found) == 1:
            buffer.delete_before_cursor(-found[0].start_position)
            buffer.insert_text(found[0].text)
        elif found:
            buffer.start_completion(insert_common_part=True)

    plain = output.ColorDepth.DEPTH_1_BIT if os.environ.get("NO_COLOR") else None
    session = prompt_toolkit.PromptSession(color_depth=plain, key_bindings=bindings)

    async def read(prompt: str, complete: Complete) -> str:
        return await session.prompt_async(
            prompt, completer=Completer(complete), complete_while_typing=False
        )

    return read
