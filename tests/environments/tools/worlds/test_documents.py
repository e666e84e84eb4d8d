"""Documents of tools: word for word those of the file, and what perturbations edit."""

import copy
import dataclasses
import functools
import hashlib
import json

import jax
import numpy as np
import pytest

from openagent_jax.domains import domain_file, lookalikes
from openagent_jax.domains.limits import Limits
from openagent_jax.environments import registry
from openagent_jax.environments.tools.perturb import edits
from openagent_jax.environments.tools.worlds import documents
from openagent_jax.environments.world import Settings, Spelling
from openagent_jax.serving import compact
from openagent_jax.text import chat, lexicon, style
from tests import helpers
from tests.domains.inns import good, save

LONG = "Find an inn. It says \"free\" or C:\\inns\\n,\nand <b>&</b> 'é' too.\n\n"
LONG += "Ein sehr langer Satz mit vielen Wörtern, der nichts weiter sagt. " * 30
FORMS = (helpers.COMPACT, *helpers.FORMS)


def rich():
    """The inns, with all that JSON schemas have; `find_inn` has another order too."""
    document = good()
    sign_in, find_inn, hold_room, book_room = (x["function"] for x in document["tools"])
    find_inn["description"] = LONG
    find_inn["strict"] = True
    find_inn["parameters"] = {
        "type": "object",
        "properties": {
            "stars": {"type": "integer", "minimum": 1, "maximum": 5, "default": 3},
            "city": {"type": "string", "description": 'The "city",\nin full'},
            "kind": {"$ref": "#/$defs/Kind"},
            "near": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "km": {"type": "number"}},
                "required": ["city"],
            },
        },
        "required": ["city"],
        "$defs": {"Kind": {"type": "string", "enum": ["single", "double"]}},
        "additionalProperties": False,
    }
    hold_room["parameters"]["properties"]["inn"]["pattern"] = "^[A-Z]"
    book_room["parameters"]["properties"]["inn"]["description"] = "where to stay"
    document["tools"][3]["function"] = {
        key: book_room[key] for key in ("description", "name", "parameters")
    }
    document["tools"][1]["x-openagent"]["descriptions"]["test"] = ['Look "up"\nan inn']
    return document


@pytest.fixture(scope="module")
def worlds(tmp_path_factory):
    """Return a function from the form to the world of the inns."""
    file = save(tmp_path_factory.mktemp("inns"), rich())

    @functools.cache
    def world(form):
        settings = Settings(domain=str(file), transfer="poi")
        if form == helpers.COMPACT:
            return registry.make(settings, Spelling(helpers.tokenizer()))
        made = chat.read(helpers.template(form), helpers.LIMITS.num_args)
        return registry.make(settings, Spelling(helpers.chat_tokenizer(), made))

    return world


class Played:
    """A task of the inns, maybe perturbed, in a form."""

    def __init__(self, world, entry="", seed=0):
        self.world, key = world, jax.random.key(seed)
        self.texts = lexicon.texts(world.tables.lexicon)
        environment, tables = world.environment, world.tables
        self.task = environment.sample(tables, key, "test")
        if entry:
            made = {x.name: x for x in environment.perturbations}[entry].make
            edit = made(environment.pools(tables, self.task, "test"))
            self.task = edit(key, self.task, 1.0)

    @property
    def prompt(self):
        pieces = self.world.environment.prompt(self.world.tables, self.task)
        return "".join(self.texts[symbol] for symbol in np.asarray(pieces))

    @property
    def documents(self):
        return self.world.transcriber.tools(jax.device_get(self.task))

    def word(self, symbol):
        return self.texts[int(symbol)]


def functions(file_tools):
    return [tool["function"] for tool in file_tools]


def needing(function, needs):
    """The function object with the code of another tool among its parameters."""
    function = copy.deepcopy(function)
    function["description"] += f", needs the code from {needs}"
    function["parameters"]["properties"]["code"] = {"type": "string"}
    function["parameters"]["required"].append("code")
    return function


def expected(document):
    sign_in, find_inn, hold_room, book_room = functions(document["tools"])
    hold_room = needing(hold_room, sign_in["name"])
    return [sign_in, find_inn, hold_room, needing(book_room, "hold_room")]


DOCUMENTS = (
    '{"description":"what sign_in does","name":"sign_in","parameters":[]}'
    f'{{"description":{json.dumps(LONG, ensure_ascii=False)},"name":"find_inn",'
    '"parameters":["stars (optional): integer; 1 to 5; default 3",'
    r'"city: The \"city\",\nin full","kind (optional): one of single, double",'
    '"near (optional): object {city; km (optional): number}"]}'
    '{"description":"what hold_room does","name":"hold_room",'
    '"parameters":["inn: pattern ^[A-Z]"],"code_from":"sign_in"}'
    '{"description":"what book_room does","name":"book_room",'
    '"parameters":["inn: where to stay"],"code_from":"hold_room"}'
)


def test_messages_have_the_function_objects_of_the_file(worlds):
    documents = Played(worlds(helpers.COMPACT)).documents
    # As text, since the order of keys counts too.
    assert json.dumps(functions(documents)) == json.dumps(expected(rich()))
    assert {document["type"] for document in documents} == {"function"}


def test_compact_documents_say_all_that_the_schema_says(worlds):
    prompt = Played(worlds(helpers.COMPACT)).prompt
    documents = prompt.partition("<|system|>")[2].partition("<|user|>")[0]
    assert documents == DOCUMENTS


@pytest.mark.parametrize("entry", ["", "identity_erasure", "argument_renaming"])
def test_serving_writes_the_same_compact_documents(worlds, entry):
    played = Played(worlds(helpers.COMPACT), entry)
    texts = compact.render([{"role": "user", "content": "x"}], played.documents, True)
    documents = "".join(texts).partition("<|user|>")[0]
    assert documents == played.prompt.partition("<|user|>")[0]


@pytest.mark.parametrize("form", helpers.FORMS)
@pytest.mark.parametrize(
    "entry", ["", "semantic_trap", "argument_renaming", "description_rewrite"]
)
def test_chat_documents_are_what_the_template_writes(worlds, form, entry):
    played = Played(worlds(form), entry)
    opening = played.world.transcriber.opening(jax.device_get(played.task))
    if not entry:
        assert functions(played.documents) == expected(rich())
    written = helpers.template(form).render(opening, played.documents, True)
    assert played.prompt == written


@pytest.mark.parametrize("form", FORMS)
class TestRenaming:
    """Each renaming perturbation changes exactly its words."""

    def edited(self, worlds, form, entry):
        before, after = (Played(worlds(form), x) for x in ("", entry))
        return before, after, functions(before.documents), functions(after.documents)

    def test_names(self, worlds, form):
        before, after, old, new = self.edited(worlds, form, "identity_erasure")
        names = [after.word(symbol) for symbol in after.task.tools.name[:4]]
        assert not {*names} & {function["name"] for function in old}
        sign_in, find_inn, hold_room, book_room = functions(rich()["tools"])
        wanted = [
            sign_in,
            find_inn,
            needing(hold_room, names[0]),
            needing(book_room, names[2]),
        ]
        wanted = [x | {"name": name} for x, name in zip(wanted, names, strict=True)]
        assert json.dumps(new) == json.dumps(wanted)
        assert before.prompt != after.prompt

    def test_arguments(self, worlds, form):
        _, after, old, new = self.edited(worlds, form, "argument_renaming")
        find_inn = copy.deepcopy(old[1])
        schema = find_inn["parameters"]
        schema["properties"] = {
            {"city": "city_two"}.get(key, key): value
            for key, value in schema["properties"].items()
        }
        schema["required"] = ["city_two"]
        assert json.dumps(new[1]) == json.dumps(find_inn)
        # Words of descriptions, and of nested objects, are not names of arguments.
        assert after.prompt.count("city_two") == (1 if "compact" in form else 2)

    def test_descriptions(self, worlds, form):
        before, after, old, new = self.edited(worlds, form, "description_rewrite")
        assert new[1] == old[1] | {"description": 'Look "up"\nan inn'}
        assert "Wörtern" in before.prompt and "Wörtern" not in after.prompt
        assert r"Look \"up\"\nan inn" in after.prompt

    def test_a_copied_tool_keeps_its_document(self, worlds, form):
        played = Played(worlds(form))
        old = functions(played.documents)
        copied = edits.copy_row(played.task, 1, 4).tools
        copied = dataclasses.replace(copied, place=copied.place.at[4].set(9))
        played.task = dataclasses.replace(played.task, tools=copied)
        assert functions(played.documents) == [*old, old[1]]
        assert played.prompt.count("Wörtern") == 60

    def test_a_new_tool_has_a_generic_document(self, worlds, form):
        after = Played(worlds(form), "rule_shift")
        (gate,) = np.flatnonzero(
            after.task.tools.visible & (after.task.tools.document < 0)
        )
        assert after.word(after.task.tools.name[gate]) in after.prompt


GOLDEN = {
    ("poi", helpers.COMPACT): "2d2a1501d0c1a8bf",
    ("poi", "hermes"): "458e437b195688cf",
    ("poi", "llama3"): "c00d1f5a61b35533",
    ("medical", helpers.COMPACT): "0a950a68e26ef9bf",
    ("medical", "hermes"): "84270d8e0d298fd2",
    ("medical", "llama3"): "36384eece0a7a3a4",
}


@pytest.mark.parametrize(("name", "form"), GOLDEN)
def test_prompts_of_builtin_domains_are_as_ever(name, form):
    """The hashes are of the prompts before tools had documents of their own.

    The compact style did not have the request before the documents then.
    """
    world, tasks = helpers.world(name, form), helpers.tasks(name)
    prompt = jax.jit(jax.vmap(world.environment.prompt, (None, 0)))
    texts = helpers.texts(name, form)
    rows = np.asarray(prompt(world.tables, tasks))
    written = ["".join(texts[symbol] for symbol in row) for row in rows]
    if form == helpers.COMPACT:
        written = [text[text.index("<|system|>") :] for text in written]
    text = "\n".join(written)
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == GOLDEN[name, form]


def test_a_template_that_changes_documents_is_refused(tmp_path):
    source = (helpers.chat_template.BUILTIN / "hermes.jinja").read_text()
    source = source.replace("(tool | tojson)", "(tool | tojson)[:900]")
    template = helpers.chat_template.load(helpers.chat_tokenizer(), source)
    made = chat.read(template, helpers.LIMITS.num_args)
    settings = Settings(domain=str(save(tmp_path, rich())), transfer="poi")
    with pytest.raises(ValueError, match="it changes the documents of tools"):
        registry.make(settings, Spelling(helpers.chat_tokenizer(), made))


def test_look_alikes_are_named(tmp_path):
    document = good()
    twin = copy.deepcopy(document["tools"][1])
    twin["function"]["name"] = "seek_inn"
    meaning = twin["x-openagent"]
    for key in ("names", "descriptions"):
        for split in ("train", "test"):
            meaning[key][split] = [f"{x} 2" for x in meaning[key][split]]
    document["tools"].append(twin)
    spec = domain_file.load(str(save(tmp_path, document)))
    (warning,) = lookalikes.warnings(spec)
    assert warning.startswith("goals[0] (book): seek_inn would do as well as find_inn")
    named = [*lookalikes.names_in_descriptions(spec)]
    assert [x.split(":")[0] for x in named] == [f"tools[{i}]" for i in range(4)]
    twin["function"]["parameters"]["properties"]["city"]["description"] = "a town"
    spec = domain_file.load(str(save(tmp_path, document)))
    assert not [*lookalikes.warnings(spec)]


@pytest.mark.parametrize("form", (helpers.COMPACT, "hermes"))
@pytest.mark.parametrize("depth", (1, 2))
def test_a_name_with_a_dot_is_one_slot(form, depth):
    """Beside an object with the same keys, and also where nothing is nested."""
    properties = {"repo.owner": {"type": "string"}}
    paths = ["repo~.owner"]
    if depth == 2:
        owner = {"type": "object", "properties": {"owner": {"type": "string"}}}
        properties["repo"] = owner
        paths.append("repo.owner")
    schema = {"type": "object", "properties": properties, "required": [*properties]}
    function = {"name": "look", "description": "find a repo", "parameters": schema}
    made = style.compact(3)
    if form != helpers.COMPACT:
        made = chat.read(helpers.template(form), 3)
    collected = documents.Documents(made)
    collected.add(function, paths)
    limits = dataclasses.replace(Limits(), depth=depth)
    layout = collected._layout(collected.functions[0], False, limits)
    slots = [piece.index for piece in layout if piece.kind == style.ARGUMENT]
    # Then the key `repo`, and `owner` in it.
    expected = [0] if depth == 1 else [0, *documents._slots(paths, limits).values()][:4]
    assert set(slots) == set(expected)
    literal = "".join(x.text for x in layout if x.kind == style.LITERAL)
    assert "owner" not in literal
    new = ["team~.boss", "repo.boss"][:depth]
    said = collected.functions[0].reworded("see", "what", new, False)
    given = said["parameters"]["properties"]
    assert "team.boss" in given and "repo.owner" not in given
    if depth == 2:
        assert [*given["repo"]["properties"]] == ["boss"]
