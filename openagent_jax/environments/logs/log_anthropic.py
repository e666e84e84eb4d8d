"""Read Anthropic's messages as OpenAI's.

In them, a content is a list of blocks: a call is a block `tool_use` of the assistant,
and its result a block `tool_result` of the next user message. The system prompt is not
a message, but a field `system` beside them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_CALL, _RESULT = "tool_use", "tool_result"
# The agent's thoughts, which are not part of what it says or does.
_THOUGHTS = ("thinking", "redacted_thinking")


def as_openai(messages: Sequence[Any]) -> Iterator[Any]:
    """Yield messages of OpenAI's chat format; those that are such already stay.

    A block of another type stays in the content, which is then not a text.

    >>> call = {"type": "tool_use", "id": "1", "name": "look", "input": {"at": "Bay"}}
    >>> result = {"type": "tool_result", "tool_use_id": "1", "content": "open"}
    >>> theirs = [{"role": "assistant", "content": [call]}]
    >>> call, result = as_openai([*theirs, {"role": "user", "content": [result]}])
    >>> call["tool_calls"][0]["function"], result["role"], result["content"]
    ({'name': 'look', 'arguments': {'at': 'Bay'}}, 'tool', 'open')
    """
    for message in messages:
        blocks = message.get("content") if isinstance(message, Mapping) else None
        kinds = {_kind(x) for x in blocks} if isinstance(blocks, list) else set()
        if not kinds & {_CALL, _RESULT, *_THOUGHTS}:
            yield message
            continue
        assert isinstance(blocks, list)
        # All results of a message come first, as Anthropic demands.
        yield from (_result(x) for x in blocks if _kind(x) == _RESULT)
        calls = [_call(x) for x in blocks if _kind(x) == _CALL]
        rest = [x for x in blocks if _kind(x) not in (_CALL, _RESULT, *_THOUGHTS)]
        if calls or rest or _RESULT not in kinds:
            more = {"tool_calls": calls} if calls else {}
            yield {**message, "content": rest, **more}


def _kind(block: Any) -> Any:
    kind = block.get("type") if isinstance(block, Mapping) else None
    return kind if isinstance(kind, str) else None


def _call(block: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": block.get("name"), "arguments": block.get("input")}
    return {"id": block.get("id"), "type": "function", "function": function}


def _result(block: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "role": "tool",
        "tool_call_id": block.get("tool_use_id"),
        "content": block.get("content"),
        "is_error": block.get("is_error"),
    }
