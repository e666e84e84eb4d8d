"""What the last text of a conversation says: an answer, a refusal, or that it is done.

`log_mapping` has the rules.
"""

import re
from collections.abc import Iterable, Sequence, Set
from decimal import Decimal

from openagent_jax.domains.domain_spec import DONE
from openagent_jax.environments.logs import log_language, log_values
from openagent_jax.environments.logs.log_conversation import CannotMap, Conversation
from openagent_jax.environments.logs.logged_task import UNSOLVABLE, Step, needs_escapes
from openagent_jax.text import messages as conversation
from openagent_jax.text import style
from openagent_jax.text.lexicon import MAX_TEXT
from openagent_jax.text.nesting import Path

# A request may contain these words, and the short ones, without naming a field.
_NO_FIELDS = {style.shared()["result"], *"from with for and the not you".split()}
_SHORTEST_FIELD = 3  # letters
# A number in a sentence, perhaps with commas between thousands.
_NUMBER = re.compile(
    r"(?<![\w.])-?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?(?!\w)(?!\.[0-9])"
)


def answer(
    parsed: Conversation, steps: Sequence[Step], in_request: Set[str | Decimal]
) -> tuple[int, Path] | str:
    """Return the answer of a task; see `LoggedTask.answer`.

    Args:
      parsed: the conversation.
      steps: the calls of the goal.
      in_request: the meanings of values that the request has.

    Raises:
      CannotMap: it ends with an answer that no result has.
    """
    last = conversation.last_line(parsed.ending)
    if refuses(parsed):
        return DONE if steps else UNSOLVABLE
    possible = {
        log_values.meaning(field.value): (i, path)
        for i, step in enumerate(steps)
        for path, field in step.fields.items()
        if not needs_escapes(log_values.text(field.value))
    }
    if last.startswith(style.ANSWER):
        value = log_values.meaning(last.removeprefix(style.ANSWER))
        if value in possible:
            return possible[value]
        if value == DONE:
            return DONE
        raise CannotMap("an answer that is in no result", f"{last:.60}")
    mentioned = _mentioned(parsed.ending, possible) - in_request
    if len(mentioned) != 1:
        return DONE
    found = possible[mentioned.pop()]
    return found if _has_asked(parsed, found[1]) else DONE


def _mentioned(text: str, values: Iterable[str | Decimal]) -> set[str | Decimal]:
    """Return the values that a text has, as words or as numbers of the same value.

    Letters are compared without case: a sentence may begin with a value.
    """
    values = set(values)
    words = {x.lower(): x for x in values if isinstance(x, str)}
    short = (x for x in words if len(x.encode()) <= MAX_TEXT)
    found: set[str | Decimal] = {words[x] for x in any_of(short).findall(text.lower())}
    numbers = (x.replace(",", "") for x in _NUMBER.findall(text))
    return found | (values & {log_values.meaning(x) for x in numbers})


def refuses_in_words(parsed: Conversation) -> bool:
    """Tell whether the agent refuses in words of its own, rather than by `Refuse`.

    A text that tells a value of a result, unless the request has it, is an answer.
    """
    last = conversation.last_line(parsed.ending)
    if last == style.REFUSE or last.startswith(style.ANSWER):
        return False
    if not log_language.refuses(parsed.ending):
        return False
    results = [x.fields.values() for x in parsed.calls if not x.failed]
    values = {log_values.meaning(value) for found in results for value in found}
    told = _mentioned(parsed.ending, values)
    return not told - _mentioned(parsed.request, values)


def refuses(parsed: Conversation) -> bool:
    """Tell whether the agent refuses, by `Refuse` or in words of its own."""
    last = conversation.last_line(parsed.ending)
    return last == style.REFUSE or refuses_in_words(parsed)


def _has_asked(parsed: Conversation, field: Path) -> bool:
    """Tell whether the user seems to have asked for the value of a field."""
    said = f"{parsed.request}\n{parsed.reply}"
    name = next((key for key in reversed(field) if isinstance(key, str)), "")
    words = re.sub(r"[\W_]+", " ", name).strip()
    named = len(words) >= _SHORTEST_FIELD and words not in _NO_FIELDS
    if named and any_of([words.lower()]).search(re.sub("[_-]", " ", said).lower()):
        return True
    return log_language.asks(said)


def any_of(texts: Iterable[str]) -> re.Pattern[str]:
    """Match any of the texts as whole words, the longest first."""
    ordered = sorted(filter(None, texts), key=lambda text: (-len(text), text))
    alternatives = "|".join(map(re.escape, ordered)) or "(?!)"
    return re.compile(rf"(?<!\w)(?<!\d\.)(?:{alternatives})(?!\w)(?!\.\d)")
