"""Episodes as messages and tools, in plain Python, for comparison with ours."""

import numpy as np

from openagent_jax.text import reply_scan
from openagent_jax.text.messages import SYSTEM
from tests import helpers


class Conversation(helpers.Writer):
    """An episode as messages and tools, in plain Python."""

    def kind(self, n, a):
        """The type of an argument: an integer if all its values are."""
        low, high = (int(x[n, a]) for x in (self.tools.arg_low, self.tools.arg_high))
        digits = all(text.isdigit() for text in self.texts[low:high])
        return "integer" if digits else "string"

    def document(self, n):
        tools, description = self.tools, self.description(n)
        has = np.flatnonzero(tools.arg_high[n] > tools.arg_low[n])
        properties = {
            self.texts[tools.arg_name[n, a]]: {"type": self.kind(n, a)} for a in has
        }
        if tools.code_from[n] >= 0:
            properties["code"] = {"type": "string"}
            description += f", needs the code from {self.name(tools.code_from[n])}"
        if tools.call_after[n] >= 0:
            description += f", to be called after {self.name(tools.call_after[n])}"
        return {
            "type": "function",
            "function": {
                "name": self.name(n),
                "description": description,
                "parameters": {
                    "type": "object",
                    "properties": properties,
                    "required": list(properties),
                },
            },
        }

    def documents(self):
        order = np.argsort(self.tools.place, kind="stable")
        return [self.document(n) for n in order if self.tools.visible[n]]

    def message(self, t):
        action = helpers.row(self.episode.action, t)
        if action.kind != reply_scan.CALL:
            said = self.agent_text(t).removesuffix(helpers.END)
            return {"role": "assistant", "content": said}
        n, call = action.call.tool, action.call
        arguments = {}
        for a, value in enumerate(call.args):
            if value >= 0:
                text = self.texts[value]
                number = self.kind(n, a) == "integer"
                name = self.texts[self.tools.arg_name[n, a]]
                arguments[name] = int(text) if number else text
        if call.code >= 0:
            arguments["code"] = self.texts[call.code]
        function = {"name": self.name(n), "arguments": arguments}
        calls = [{"type": "function", "id": "call00000", "function": function}]
        return {"role": "assistant", "content": "", "tool_calls": calls}

    def answer(self, t):
        """What the agent is shown after turn t: a list of one message or none."""
        text = self.reply_text(t).removesuffix("<|assistant|>")
        if text.startswith("<|user|>"):
            return [{"role": "user", "content": text.removeprefix("<|user|>")}]
        if text:
            content = text.removeprefix("<|tool|>")
            return [{"role": "tool", "name": "x", "content": content}]
        return []

    def messages(self):
        """Yield the messages before each turn of the agent, and finally all of them."""
        request = self.prompt().split("<|user|>")[1].removesuffix("<|assistant|>")
        said = [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": request},
        ]
        for t in np.flatnonzero(self.episode.valid):
            yield said
            said = [*said, self.message(t), *self.answer(t)]
        yield said

    def prompt(self):
        """The prompt without tool documents, which tests do not need here."""
        request = "".join(
            self.texts[s] if s >= 0 else self.constant(-1 - s) for s in self.task.phrase
        )
        return f"<|user|>{request}<|assistant|>"

    def constant(self, q):
        shown = self.task.shown[q]
        return self.texts[self.task.constants[q]] if shown else "something"
