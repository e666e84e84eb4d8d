"""`launch.domain`, as seen by users: one line per fault, and the episodes it shows."""

import json
import re

import pytest

from openagent_jax.domains import domain_file, domain_types
from tests.environments.logs.examples import GOOD, says, user
from tests.environments.logs.examples import TOOLS as LOGGED

TEXT = {"type": "string"}
TOOLS = [
    {
        "name": name,
        "description": text,
        "parameters": {"properties": {arg: TEXT for arg in args}},
    }
    for name, text, args in (
        ("find_book", "Find a book by title.", ["title"]),
        ("book_price", "Get the price of a book.", ["book_id"]),
        ("buy_book", "Buy a book.", ["book_id"]),
    )
]


@pytest.fixture(scope="module")
def drafted(commands, tmp_path_factory):
    folder = tmp_path_factory.mktemp("drafted")
    (folder / "bare.json").write_text(json.dumps(TOOLS))
    file = folder / "books.json"
    done = commands("domain", "draft", f"{folder}/bare.json", f"--out={file}")
    assert done.code == 0, done.err
    return file, done.out


def test_draft(drafted):
    file, said = drafted
    assert said.startswith(f"{file}: 3 tools, 4 types, 5 goals\n")
    assert "Fill in" not in said
    assert "find_book returns book_id, judging by its name" in said
    assert f"Next: python -m launch.domain check {file}" in said
    assert [goal.name for goal in domain_file.load(file).goals][3:] == [
        "find_book_then_book_price",
        "find_book_then_buy_book",
    ]
    assert {path.name for path in file.parent.iterdir()} == {"bare.json", "books.json"}


@pytest.mark.slow
def test_check_of_a_good_file(commands, drafted, tmp_path):
    document = json.loads(drafted[0].read_text())
    phrases = document["goals"][0]["phrases"]
    phrases["train"] = [f"{'xq ' * 60}{text}" for text in phrases["train"]]
    file = tmp_path / "books.json"
    file.write_text(json.dumps(document))
    done = commands("domain", "check", str(file), "--config.sandbox.prompt_tokens=50")
    assert done.code == 0, done.err
    assert done.out.startswith(f"{file}: no faults. 3 tools, 4 types, 5 goals; the ")
    assert "distractor_tools changes nothing here: all 3 tools are shown" in done.out
    assert "identity_erasure changes nothing" not in done.out
    assert "the oracle" not in done.out
    (needs,) = re.findall(r"prompt_tokens=50 is too short: .* has (\d+)", done.out)
    (longest,) = re.findall(r"the longest prompt has .*, perturbed (\d+)", done.out)
    # The longer requests are those of training alone.
    assert int(needs) > 60 + int(longest)
    assert "Raise these: --config.sandbox.prompt_tokens=" in done.out
    assert "To be reviewed:\n" in done.out
    stages = done.err.splitlines()  # one line each where there is no terminal
    assert stages[0] == f"{file} has no faults; tokenizing its texts"
    ends = [line.split(", ")[-1] for line in stages[1:]]
    assert ends == ["test split", "train split"]


def test_draft_reports_all_faults(commands, tmp_path):
    file, out = tmp_path / "bare.json", tmp_path / "out.json"
    lost, anything = {"$ref": "#/$defs/No"}, {"type": "array"}
    tools = [
        {"name": name, "parameters": {"properties": {"x": schema}}}
        for name, schema in (("go", lost), ("stop", anything))
    ]
    file.write_text(json.dumps(tools))
    done = commands("domain", "draft", str(file), f"--out={out}")
    assert done.code == 2 and not out.exists()
    first, second = done.out.splitlines()
    assert first.startswith(f"{file}: tools[0].parameters.properties.x: the reference ")
    assert first.endswith("or leave the tool out: --skip=go,stop")
    assert second.startswith(f"{file}: tools[1]: 'stop', argument 'x': an array ")
    assert done.err == f"domain.py: {file}: 2 faults; correct what is named above\n"
    assert [x.name for x in tmp_path.iterdir()] == ["bare.json"]


def bad_list():
    """A list with all kinds of faults, and what each is named by."""
    many = {"enum": [f"v{i}" for i in range(10_000)]}
    faulty = (
        (TEXT, "tools[0]: not "),  # replaced below
        (TEXT, "tools[2]: 'same' is also tools[1]; keep one of the two"),
        ({"$ref": "#/$defs/No"}, "tools[3].parameters.properties.x: the reference"),
        ({"$ref": "#/properties/x"}, "tools[4].parameters.properties.x: it refers "),
        (many, "tools[5].parameters.properties.x: an enum of 10,000 values"),
        ({"type": "array"}, "tools[6]: 'do_5', argument 'x': an array without `it"),
    )
    tools, places = [], []
    for number, (schema, place) in enumerate(faulty):
        parameters = {"properties": {"x": schema}, "required": ["x"]}
        tool = {"name": f"do_{number}", "parameters": parameters}
        tools += [{**tool, "name": "same"}] * 2 if number == 1 else [tool]
        places.append(place)
    tools[0] = "do_0"
    return tools, places


def test_draft_reports_all_kinds_of_faults_at_once(commands, tmp_path):
    tools, places = bad_list()
    file, out = tmp_path / "bare.json", tmp_path / "out.json"
    file.write_text(json.dumps(tools))
    done = commands("domain", "draft", str(file), f"--out={out}")
    assert done.code == 2 and [x.name for x in tmp_path.iterdir()] == ["bare.json"]
    lines = done.out.splitlines()
    assert len(lines) == len(places)
    for line, place in zip(lines, places, strict=True):
        assert line.startswith(f"{file}: {place}")
        assert ";" in line or "leave the tool out" in line  # the remedy
    assert f"{len(places)} faults; correct what is named above" in done.err


def test_two_hundred_tools(commands, tmp_path):
    """They are drafted, and the flag that they need is named."""
    file, out = tmp_path / "bare.json", tmp_path / "out.json"
    tools = [
        {
            "name": f"get_gauge_{i}",
            "description": f"Read the gauge {i} of the power station.",
            "parameters": {"properties": {f"dial_{i}": TEXT}},
        }
        for i in range(200)
    ]
    file.write_text(json.dumps(tools))
    done = commands("domain", "draft", str(file), f"--out={out}")
    assert done.code == 0, done.err
    assert "tools: 200 tools need --config.sandbox.num_tools=200\n" in done.out
    done = commands("domain", "check", str(out))
    assert done.code == 2 and done.out == (
        f"{out}: tools: 200 entries, but the limit is 16; remove some or raise "
        "sandbox.num_tools\n"
    )


def test_values_that_no_rule_makes_up(commands, tmp_path):
    """A pattern without an example becomes a text to fill in, which `check` names."""
    file, out = tmp_path / "bare.json", tmp_path / "out.json"
    schema = {**TEXT, "pattern": "^(?!XX)[A-Z]{2}$"}
    tool = {"name": "get_lot", "description": "Find a lot.", "parameters": {}}
    tool["parameters"] = {"properties": {"$lot": schema, "@in": TEXT, "X-No": TEXT}}
    file.write_text(json.dumps([tool]))
    done = commands("domain", "draft", str(file), f"--out={out}")
    assert done.code == 0, done.err
    place = "types.lot.values[0]: "
    assert f"  {place}three or more values of lot (of get_lot)" in done.out
    done = commands("domain", "check", str(out))
    assert done.code == 2
    assert done.out.startswith(f"{out}: {place}still says 'FILL IN: three or more")
    text = out.read_text()
    hole = re.search('"FILL IN:[^"]*"', text)
    out.write_text(
        text.replace(
            hole[0],
            '"AB", "CD", "EF", "GH", "IJ", "KL", "MN", "OP", "QR", "ST", "UV", "WX"',
        )
    )
    (tool,) = domain_file.load(out).tools
    assert [name for name, _ in tool.arguments] == ["$lot", "@in", "X-No"]
    assert not list(domain_types.warnings(domain_file.load(out)))
    out.write_text(text.replace(hole[0], '"AB", "CD", "EF"'))
    (warning,) = domain_types.warnings(domain_file.load(out))
    assert warning.startswith("types.lot: train has 1 value, test 1 and shift 1, so ")


def test_check_reports_all_faults(commands, drafted, tmp_path):
    document = json.loads(drafted[0].read_text())
    document["types"]["book_title"]["train"] = []
    document["tools"][0]["type"] = "funktion"
    document["goals"][1]["steps"][0]["tool"] = "bok_price"
    file = tmp_path / "bad.json"
    file.write_text(json.dumps(document))
    done = commands("domain", "check", str(file))
    assert done.code == 2
    assert done.out.splitlines() == [
        f"{file}: types.book_title.train: empty list; add at least one entry",
        f"{file}: tools[0].type: unknown type 'funktion'; did you mean 'function'?",
        f"{file}: goals[1].steps[0].tool: unknown tool 'bok_price'; did you mean "
        "'book_price'?",
    ]
    assert done.err == f"domain.py: {file}: 3 faults; correct what is named above\n"


@pytest.mark.slow
def test_show(commands, drafted):
    args = ["domain", "show", str(drafted[0]), "--num=1", "--seed=2"]
    clean = commands(*args)
    assert clean.code == 0, clean.err
    *_, request, call, _, answer, end = clean.out.strip().splitlines()
    assert request.startswith("user ") or call.startswith("agent  ")
    assert answer.startswith("agent  Answer: ") and end == "solved by the oracle"
    both = commands(*args, "--perturbation=tool_withheld")
    assert both.code == 0, both.err
    assert "\x1b" not in both.out  # no colours without a terminal
    rows = both.out.splitlines()
    assert rows[2].split() == ["clean", "tool_withheld"]
    assert sum(row[59:60] == "<" for row in rows) >= 2
    assert any(row.endswith("| agent  Refuse") for row in rows)
    assert max(map(len, rows)) <= 120
    same = commands(*args, "--perturbation=tool_withheld", "--strength=0")
    assert "tool_withheld: it changes nothing here" in same.out


@pytest.mark.slow
def test_show_names_tools_as_their_list_does(commands, tmp_path):
    tools = [{**tool, "name": tool["name"].replace("_", ".")} for tool in TOOLS]
    (tmp_path / "bare.json").write_text(json.dumps(tools))
    file = tmp_path / "dotted.json"
    done = commands("domain", "draft", f"{tmp_path}/bare.json", f"--out={file}")
    assert "find.book is called find_book; agents see that name" in done.out
    shown = commands("domain", "show", str(file), "--num=1")
    assert shown.code == 0, shown.err
    lines = shown.out.splitlines()
    assert lines[0] == "find_book is find.book in its tool list"
    assert not any("book.price" in line for line in lines[3:])


@pytest.mark.slow
def test_show_of_a_log(commands, tmp_path):
    file = tmp_path / "my.jsonl"
    rows = [
        {"messages": [user(f"Rome, on day {day}"), *GOOD, says("sunny")]}
        for day in range(2)
    ]
    file.write_text("".join(json.dumps({**x, "tools": LOGGED}) + "\n" for x in rows))
    args = ["domain", "show", str(file), "--num=1", "--perturbation=identity_erasure"]
    done = commands(*args)
    assert done.code == 0, done.err
    assert done.out.startswith(f"{file}: mapped 2 of 2 conversations\n")
    assert "agent  get_weather(city='Rome') " in done.out
    assert "agent  get_weather(city='Rome')\n" not in done.out  # on the right


@pytest.mark.parametrize(
    ("args", "content", "words"),
    [
        ([], "", ["give draft or check or show"]),
        (["draft"], "", ["draft: FILE is missing"]),
        (["draft", "BARE"], "[]", ["--out is missing"]),
        (["draft", "BARE", "--out=OUT"], "[]", ["--out=", "must end with .json"]),
        (["draft", "BARE", "--out=BARE"], "[]", ["--out: ", "exists already"]),
        (
            ["draft", "BARE", "--out=OUT/x.json"],
            json.dumps(TOOLS),
            ["--out=OUT/x.json: there is no folder OUT; make it"],
        ),
        (
            ["draft", "none.json", "--out=OUT.json"],
            "",
            ["none.json: file: No such fil"],
        ),
        (["draft", "BARE", "--out=OUT.json"], "{", ["line 1, column 2: invalid JSON"]),
        (["draft", "BARE", "--out=OUT.json"], b'["\xff"]', ["byte 2: not UTF-8"]),
        (["draft", "BARE", "--out=OUT.json"], "{}", ["BARE: top level: not a list of"]),
        (["draft", "BARE", "--out=OUT.json"], "[]", ["BARE: top level: no tools"]),
        (
            ["draft", "BARE", "--out=OUT.json", "--skip=x"],
            json.dumps(TOOLS),
            ["BARE: skip: no tool is called x; known: find_book, book_price, buy_book"],
        ),
        (
            ["check", "BARE"],
            json.dumps(TOOLS),
            ["BARE is a list of tools", "draft BARE"],
        ),
        (
            ["check", "BARE"],
            json.dumps({"result": {"tools": TOOLS}}),
            ["BARE is a list of tools", "draft BARE"],
        ),
        (["check", "poi", "--out=x"], "", ["--out is for draft"]),
        (["check", "pio"], "", ["pio: 1 fault"]),
        (["check", "my.jsonl"], "", ["my.jsonl is a log; check it by python -m"]),
        (["show", "my.jsonl"], "", ["my.jsonl: No such file"]),
        (["show", "poi", "--config.sandbox.max_turns=0"], "", ["sandbox.max_turns=0"]),
        (["check", "BARE"], "{", ["BARE: 1 fault"]),
        (["show", "pio"], "", ['no environment "pio"; did you mean "poi"']),
        (
            ["show", "poi", "--perturbation=semantic"],
            "",
            ["--perturbation", '"semantic'],
        ),
        (
            ["show", "poi,bank"],
            "",
            ["poi,bank stands for 2 domains; show one, such as"],
        ),
        (["show", "poi", "--num=0"], "", ["num"]),
        (["show", "poi", "--strength=2"], "", ["strength"]),
    ],
)
def test_bad_use(commands, tmp_path, args, content, words):
    file = tmp_path / "file.json"
    data = content if isinstance(content, bytes) else content.encode()
    file.write_bytes(data)
    places = {"BARE": str(file), "OUT": str(tmp_path / "out")}
    for name, place in places.items():
        args = [arg.replace(name, place) for arg in args]
        words = [word.replace(name, place) for word in words]
    done = commands("domain", *args)
    assert done.code == 2, done
    assert done.err.count("\n") == 1, done.err
    for word in words:
        assert word in done.err, done.err
    assert not list(tmp_path.glob("out*"))
