"""Worlds and their compiled functions, built once for all tests that use them.

Compiling takes most of the time: all batches have one size, and domains, lexicons and
pools are arguments, so that one program serves all of them.
"""

import collections
import functools
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from tokenizers import AddedToken, Tokenizer

import openagent_jax
from openagent_jax import expert, types
from openagent_jax.curriculum import draw
from openagent_jax.domains import domain_file, domain_spec
from openagent_jax.domains.limits import Limits
from openagent_jax.environments import registry
from openagent_jax.environments.tools import environment
from openagent_jax.environments.tools import make as tools
from openagent_jax.environments.tools import types as tool_types
from openagent_jax.environments.tools.worlds import domain
from openagent_jax.environments.world import Settings, Spelling, World
from openagent_jax.interop import chat_template
from openagent_jax.models import transformer
from openagent_jax.text import chat, reply_scan, scalars
from openagent_jax.text import style as forms
from tests import writing

TOKENIZER = Path(openagent_jax.__file__).parent / "backbones/nano/tokenizer.json"
LIMITS = Limits()
OTHER = {"poi": "medical", "medical": "poi"}
DOMAINS = tuple(OTHER)
NUM_VISIBLE, MAX_TURNS, BATCH = 5, 12, 256
NUM_TOKENS = 352  # few episodes are longer; these are cut
CLEAN = "clean"
COMPACT = "compact"
TEMPLATES = Path(__file__).parent / "templates"
GOLDEN = Path(__file__).parent / "golden"
# The last two are in tests/templates.
FORMS = ("hermes", "hermes_compact", "llama3", "qwen", "llama31")
CHAT_MARKS = (
    "<|im_start|>",
    "<|im_end|>",
    "<|begin_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
)
END = forms.END
CATALOGUE = {entry.name: entry for entry in tools.DOMAINS.perturbations}
EDITS = (CLEAN, *CATALOGUE)
# Together they contain every kind of action and result that the expert meets.
SHOWN = (
    CLEAN,
    "identity_erasure",
    "query_underspecified",
    "runtime_error",
    "tool_redirection",
    "tool_deprecation",
    "tool_addition",
    "schema_drift",
    "query_evolution",
    "nonstandard_feedback",
    "error_wording",
    "missing_values",
    "dependency_extension",
    "rule_shift",
    "unsolvable",
)
TRACES = collections.Counter()  # how often each function below was traced


def traced(function):
    """Count how often JAX runs the Python of a function."""

    @functools.wraps(function)
    def wrapper(*args):
        TRACES[function.__name__] += 1
        return function(*args)

    return wrapper


@functools.cache
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(TOKENIZER))


@functools.cache
def chat_tokenizer() -> Tokenizer:
    """The same tokenizer, with the special tokens of chat templates added."""
    made = Tokenizer.from_file(str(TOKENIZER))
    marks = [AddedToken(mark, special=True) for mark in CHAT_MARKS]
    made.add_special_tokens(marks)
    return made


@functools.cache
def template(form: str) -> chat.Template:
    """One of our chat templates, or one of tests/templates."""
    files = (folder / f"{form}.jinja" for folder in (chat_template.BUILTIN, TEMPLATES))
    source = next(file.read_text() for file in files if file.exists())
    return chat_template.load(chat_tokenizer(), source)


@functools.cache
def world(name: str, form: str = COMPACT) -> World:
    """A builtin domain with its own goals, or `random`; the builtin domains transfer to
    each other."""
    settings = Settings(
        domain=name,
        transfer=OTHER.get(name, "poi"),
        num_visible=NUM_VISIBLE,
        max_turns=MAX_TURNS,
    )
    if form == COMPACT:
        return registry.make(settings, Spelling(tokenizer()))
    style = chat.read(template(form), LIMITS.num_args)
    return registry.make(settings, Spelling(chat_tokenizer(), style))


def lexicon(name: str, form: str = COMPACT):
    return world(name, form).tables.lexicon


# One environment serves all domains and styles; only its tables differ.
ENVIRONMENT = tools.functions(Settings(max_turns=MAX_TURNS).sizes, NUM_VISIBLE)


@functools.cache
def spec(name: str) -> domain_spec.DomainSpec:
    return domain_file.load(name, LIMITS)


def arrays(name: str) -> domain.Domain:
    return world(name).tables.source.tasks


def keys(seed: int = 0, start: int = 0, num: int = BATCH) -> jax.Array:
    return draw.task_keys(jax.random.key(seed), start, num)


def tasks(name: str, split: str = "train", start: int = 0) -> tool_types.Task:
    """A batch of tasks; another `start` gives other tasks."""
    return sample(world(name).tables, keys(0, start), split)


def edited(name, split, entry, strength=1.0, start=0) -> tool_types.Task:
    """The same batch under an entry of the catalogue (or `CLEAN`), as evaluated."""
    if entry == CLEAN:
        return tasks(name, split, start)
    return edit(
        jnp.int32(EDITS.index(entry)),
        world(name).tables,
        keys(1, start),
        tasks(name, split, start),
        jnp.float32(strength),
        split,
    )


def edit_alone(entry, tables, tasks, split) -> tool_types.Task:
    """A batch under one entry, without compiling the others: for arrays of other shapes
    than those of other tests."""
    return _edit_alone(entry, tables, keys(1), tasks, jnp.int32(domain.index(split)))


@functools.partial(jax.jit, static_argnums=0)
def _edit_alone(entry, tables, keys, tasks, split):
    edit = draw.make_edit(ENVIRONMENT, (entry,), split)

    def one(key, task):
        return edit(tables, key, task, jnp.float32(1), jnp.int32(1)).task

    return jax.vmap(one)(keys, tasks)


def edit_one(index, tables, split, key, task, strength):
    """One of `EDITS`, by a traced index."""
    edit = draw.make_edit(ENVIRONMENT, EDITS[1:], split)
    return edit(tables, key, task, strength, index).task


def sample(tables, keys, split):
    return _sample(tables, keys, jnp.int32(domain.index(split)))


@jax.jit
@traced
def _sample(tables, keys, split):
    return jax.vmap(lambda key: ENVIRONMENT.sample(tables, key, split))(keys)


def edit(index, tables, keys, tasks, strength, split):
    split = jnp.int32(domain.index(split))
    return _edit(index, tables, keys, tasks, strength, split)


@jax.jit
@traced
def _edit(index, tables, keys, tasks, strength, split):
    def one(key, task):
        return edit_one(index, tables, split, key, task, strength)

    return jax.vmap(one)(keys, tasks)


@jax.jit
@traced
def demonstrate(tables, tasks):
    """`(trajectories, fewest calls)` of the expert."""
    play = jax.vmap(functools.partial(expert.demonstrate, ENVIRONMENT), (None, 0))
    return play(tables, tasks), jax.vmap(environment.certificate)(tasks).fewest_calls


@functools.partial(jax.jit, static_argnums=2)
@traced
def write(tables, trajectories, num_tokens=NUM_TOKENS):
    """`(tokens, valid, loss mask, length)` of trajectories."""

    def one(episode):
        return expert.write(ENVIRONMENT, tables, episode, num_tokens)

    return jax.vmap(one)(trajectories)


@jax.jit
@traced
def reset(lexicon, task):
    return environment.reset(lexicon, task)


@jax.jit
@traced
def step(lexicon, task, state, action, max_turns):
    return environment.step(lexicon, task, state, action, max_turns)


# On the host.


def leaves(tree) -> list[np.ndarray]:
    """The arrays of a tree."""
    return jax.tree.leaves(host(tree))


def host(tree):
    """The same tree in NumPy."""
    return jax.tree.map(np.asarray, tree)


def row(tree, i: int):
    """Element i of a batch."""
    return jax.tree.map(lambda x: x[i], tree)


def rows(tree) -> list:
    """The elements of a batch, in NumPy."""
    tree = host(tree)
    return [row(tree, i) for i in range(len(jax.tree.leaves(tree)[0]))]


def ragged(table) -> list[np.ndarray]:
    """The rows of a `Ragged`."""
    flat, start, length = map(np.asarray, (table.flat, table.start, table.length))
    return [flat[a : a + n] for a, n in zip(start, length, strict=True)]


class Texts(list[str]):
    """The text of every value: of symbols by a list, of numbers by spelling them."""

    def __getitem__(self, index):
        if isinstance(index, slice):
            if (index.start or 0) < scalars.NUMBER:
                return list(self)[index]
            return [scalars.spelled(x) for x in range(index.start, index.stop)]
        is_number = index >= scalars.NUMBER
        return scalars.spelled(index) if is_number else super().__getitem__(index)


@functools.cache
def texts(name: str, form: str = COMPACT) -> list[str]:
    """The text of every value."""
    return Texts(bytes(t).decode() for t in ragged(lexicon(name, form).texts))


def spell(tokens) -> str:
    """The text of tokens, including special ones."""
    return chat_tokenizer().decode([int(t) for t in tokens], skip_special_tokens=False)


def goal_kind(name: str, goal: str) -> int:
    return [g.name for g in spec(name).goals].index(goal)


def tool_rows(name: str) -> dict[str, int]:
    """Row of each tool of a domain."""
    return {tool.name: n for n, tool in enumerate(spec(name).tools)}


def biased_policy(likely: dict[str, float]) -> tuple[types.Policy, types.Params]:
    """A small policy at initialisation with a bias on the logits of some tokens; with
    random weights only, it would never end a turn, refuse or ask."""
    config = transformer.ModelConfig(
        vocab_size=tokenizer().get_vocab_size(),
        width=32,
        num_layers=2,
        num_heads=2,
        num_kv_heads=2,
        head_size=16,
        mlp_width=32,
        remat="none",
    )
    plain = transformer.make_policy(config)
    # Larger than at initialisation, so that earlier text makes a difference.
    params = jax.tree.map(lambda x: 3 * x, plain.init(jax.random.key(0)))
    bias = np.zeros(config.vocab_size, np.float32)
    for text, value in likely.items():
        bias[tokenizer().token_to_id(text)] = value

    def head(params, hidden):
        logits = plain.head(params, hidden)
        return logits + bias.reshape((1,) * (logits.ndim - 1) + (-1,))

    return plain._replace(head=head), params


class Writer:
    """The text of an episode in plain Python, turn by turn."""

    def __init__(self, name, episode):
        self.texts = texts(name)
        self.episode, self.task = episode, episode.task
        self.tools = episode.task.tools

    def name(self, n):
        return self.texts[self.tools.name[n]]

    def description(self, n, num=None):
        return "".join(self.texts[s] for s in self.tools.description[n][:num])

    def document(self, n):
        tools = self.tools
        has = tools.arg_high[n] > tools.arg_low[n]
        document = {
            "description": self.description(n),
            "name": self.name(n),
            "parameters": [self.texts[s] for s in tools.arg_name[n][has]],
        }
        for key in ("code_from", "call_after"):
            if getattr(tools, key)[n] >= 0:
                document[key] = self.name(getattr(tools, key)[n])
        return json.dumps(document, separators=(",", ":"), ensure_ascii=False)

    def prompt(self):
        task = self.task
        order = np.argsort(self.tools.place, kind="stable")
        documents = [self.document(n) for n in order if self.tools.visible[n]]
        said = [self.texts[value] for value in task.said]
        constants = [
            text if shown else "something"
            for text, shown in zip(said, task.shown, strict=True)
        ] + said
        request = (self.texts[s] if s >= 0 else constants[-1 - s] for s in task.phrase)
        documents, request = "".join(documents), "".join(request)
        asked = f"<|user|>{request}"
        return f"{asked}<|system|>{documents}{asked}<|assistant|>"

    def is_documented(self, n):
        """Whether a document has the name of a tool, if with other arguments."""
        return self.tools.name[n] in self.tools.name[self.tools.visible]

    def agent_text(self, t):
        action = row(self.episode.action, t)
        if action.kind == reply_scan.CALL:
            n, call = action.call.tool, action.call
            pairs = {
                self.texts[name]: self.texts[value]
                for name, value in zip(self.tools.arg_name[n], call.args, strict=True)
                if value >= 0
            }
            if call.code >= 0:
                pairs["code"] = self.texts[call.code]
            said = {"name": self.name(n), "arguments": pairs}
            return json.dumps(said, separators=(",", ":"), ensure_ascii=False) + END
        if action.kind == reply_scan.ANSWER:
            return f"Answer: {self.texts[action.value]}{END}"
        return {reply_scan.REFUSE: "Refuse", reply_scan.ASK: "Ask"}[
            int(action.kind)
        ] + END

    def reply_text(self, t):
        result = row(self.episode.timestep.observation, t)
        if result.status == forms.NO_RESULT:
            return ""
        if result.status == forms.USER_REPLY:
            told = zip(self.task.said, self.task.shown, strict=True)
            told = ", ".join(self.texts[value] for value, shown in told if not shown)
            return f"<|user|>{told or 'I said all'}<|assistant|>"
        if result.status == forms.USER_CHANGE:
            change = self.task.faults.change
            new, old = change.value, self.task.said[change.constant]
            text = zip(change.text, (new, old, 0), strict=True)
            said = "".join(self.texts[x] + self.texts[value] for x, value in text)
            return f"<|user|>{said}<|assistant|>"
        if result.status == forms.OK:
            names = self.tools.result_name[result.tool]
            fields = zip(names, result.values, strict=True)
            values = {self.texts[name]: value for name, value in fields if value >= 0}
            typed = [key for key, value in values.items() if value >= scalars.NUMBER]
            pairs = {key: self.texts[value] for key, value in values.items()}
            bare = [self.texts[name] for name in names[names > 0] if result.blank]
            pairs = dict.fromkeys(bare, "null") or pairs
            if result.tool == self.task.faults.lister:
                key, name = "new_tool", self.texts[max(result.code, 0)]
                pairs, bare = {key: name or "[]"}, [] if name else [key]
            elif result.code >= 0:
                pairs["code"] = self.texts[result.code]
            pairs = pairs or {"result": "done"}
            form = self.task.faults.form[result.tool]
            body = writing.result(pairs, typed, form, bare)
            if result.target >= 0:
                body += writing.notice(self.name(result.target), result.wording)
        else:
            about = self.name(result.target) if result.target >= 0 else ""
            if result.status == forms.RATE_LIMITED:
                about = str(result.wait)
            if result.status == forms.SCHEMA_CHANGED:
                names = self.tools.arg_name[result.target]
                about = ", ".join(self.texts[name] for name in names if name > 0)
            body = writing.error(int(result.status), about, result.wording)
        if result.status == forms.BAD_FORMAT:  # no tool was called
            return f"<|user|>{body}<|assistant|>"
        return f"<|tool|>{body}<|assistant|>"

    def turns(self):
        return [
            (self.agent_text(t), self.reply_text(t))
            for t in np.flatnonzero(self.episode.valid)
        ]
