"""The constructions of requests, by pool.

A construction says how the calls of a goal become one text: which results are named
within the phrases that use them (`nesting`), and with which words the others are found,
asked for and referred to. In its texts, `@` stands for a phrase of a tool, or for the
noun of a type.

Pools share neither constructions nor frames: each frame below (a text with its choices
expanded, without `@` and punctuation) belongs to one construction, except for those in
`GLUE`, which say nothing. What the tools say differs by pool in the domain file.
"""

from dataclasses import dataclass

POOLS = ("train", "test", "rewrite_train", "rewrite_test")
# Joints that all pools may share.
BOTH = ("imperative", "statement")
FRAGMENTS = ("imperative", "statement", "question", "fragment")
GLUE = frozenset(("", "and", ",", ", and", ".", "?", ";"))


@dataclass(frozen=True)
class Construction:
    """A way to write requests.

    The clauses of a request are, in order: results that are found (`state`), effects
    (`do`), and at the end the value that is asked for (`ask`; `recall` if it has come
    up before, `result` if an effect returns it). If `goal_first`, the last clause comes
    first.
    """

    name: str
    pool: str
    # Which results are nested: "all" that can be; "split", those but not the inputs of
    # the last clause; "leaves", those that need no other result; or "none".
    nesting: str
    state: str = ""
    ask: str = ""
    result: str = ""
    recall: str = ""  # asks for a value that was found before; `ask` if empty
    do: str = "@"
    last_do: str = ""  # for an effect at the end; `do` if empty
    that: str = ""  # refers to a result; see also `found`
    found: str = ""  # refers to a result if constants have the same type
    made: str = ""  # refers to a result of an effect whose words do not mention it
    ahead: str = ""  # refers to a result that is only named later, if the goal is first
    first: str = ""  # before the first of several clauses
    second: str = ""  # before the second one, if the goal is first
    middle: str = ". "  # between clauses
    last: str = ""  # before the last one; `middle` if empty
    end: str = "."
    only: str = ""  # before a single clause
    # An effect (`&`) that is only wanted if a value (`@`) fits a constant (`%`).
    at_most: str = ""
    at_least: str = ""
    equals: str = ""
    goal_first: bool = False
    clauses: tuple[int, int] = (1, 9)  # least and most
    last_kinds: tuple[str, ...] = ("ask", "do")  # what the last clause may be
    finds_first: bool = False  # whether the first clause has to find something
    # Kinds of `do` phrases (`tool_phrases.Kind`). A statement stands without a frame.
    do_kinds: tuple[str, ...] = ("imperative",)
    whole_do: bool = False  # whether `do` may also stand for a value that is asked for
    indirect: bool = True  # whether `ask` and `state` take "what ..." and "how ..."
    pronoun: bool = False  # whether "it" is used for the result just found
    terse: bool = False  # whether fragments are allowed


TRAIN = (
    Construction(
        "imperative", "train", "all",
        state="{find|get} @", ask="{find|get|give me} @",
        result="{report|give back} the @ you get",
        recall="give me @ too",
        that="that @", found="the @ you found",
        made="the @ you get from it",
        only="{|Please }", first="{|Please }", middle=", then ", last=", and ",
        indirect=False, whole_do=True, pronoun=True,
        at_most="if @ is at most %, &",
        at_least="if @ is at least %, &",
        equals="if @ is %, &",
    ),
    Construction(
        "question", "train", "all",
        state="look for @", ask="{what is|can you name} @",
        result="state the @ you get",
        last_do="{can|could} you @",
        that="that @", found="the @ that came up",
        made="the @ it produces",
        middle=". ", last=". ", end="?",
        indirect=False, whole_do=True,
        at_most="provided @ is no more than %, &",
        at_least="provided @ is no less than %, &",
        equals="provided @ is exactly %, &",
    ),
    Construction(
        "steps", "train", "none",
        state="look up @", ask="tell me @", result="tell me the @ you get",
        that="that @", found="the @ you looked up",
        made="the @ you get there",
        first="{First, |To begin, }", middle=". {Then |Next, }",
        last=". {Finally, |At the end, }",
        clauses=(2, 9), whole_do=True,
        at_most="&, but only when @ does not exceed %",
        at_least="&, but only when @ does not fall below %",
        equals="&, but only when @ equals %",
    ),
    Construction(
        "chain", "train", "leaves",
        state="{check|note down} @", ask="{read me|show me} @",
        result="show me the @ you receive",
        that="that @", found="the @ that you saw",
        made="the @ it yields",
        middle=", ", last=", and {then|after that} ",
        clauses=(2, 4), pronoun=True, indirect=False,
        at_most="as long as @ is not above %, &",
        at_least="as long as @ is not below %, &",
        equals="as long as @ says %, &",
    ),
    Construction(
        "purpose", "train", "split",
        state="{fetch|retrieve} @", ask="I {want|need} to know @",
        last_do="I {want|need} you to @",
        result="tell me what @ you get",
        that="that @", found="the @ you fetched",
        made="the @ you get that way", ahead="a certain @",
        second=". For that, {|first }", middle=". Then ", goal_first=True,
        clauses=(2, 9),
    ),
    Construction(
        "wishes", "train", "all",
        state="search for @", ask="hand me @", result="hand me the @ you get",
        that="that @", found="the @ from your search",
        made="the @ which that produces",
        first="{Several things, please|I have several wishes}: ",
        middle="; ", last="; and ",
        clauses=(2, 5),
    ),
)  # fmt: skip
TEST = (
    Construction(
        "wish", "test", "all",
        state="bring up @", ask="I would like to {hear|be told} @",
        last_do="I would like you to @", result="quote the resulting @",
        do="I would like you to @", that="this @", found="this very @",
        made="the ensuing @",
        middle=". {Besides|Moreover}, ", do_kinds=BOTH,
        at_most="assuming @ stays within %, &",
        at_least="assuming @ reaches %, &",
        equals="assuming @ is precisely %, &",
    ),
    Construction(
        "once", "test", "none",
        state="{determine|ascertain} @", ask="{let me know|inform me of} @",
        result="let me know the resulting @",
        that="this @", found="the @ thus determined",
        made="the @ resulting from this",
        first="", middle=". {Once that is done|Afterwards}, ",
        clauses=(2, 9), indirect=False, do_kinds=BOTH,
        at_most="on condition that @ is % or less, &",
        at_least="on condition that @ is % or more, &",
        equals="on condition that @ turns out to be %, &",
    ),
    Construction(
        "as_soon_as", "test", "split",
        state="as soon as you know @", ask="pass on @", result="pass on the ensuing @",
        that="this @", found="the @ known by then",
        middle=", ", clauses=(2, 2), finds_first=True, do_kinds=BOTH,
    ),
    Construction(
        "aim", "test", "split",
        state="establish @", ask="my aim is to learn @", last_do="my aim is to @",
        result="disclose the resulting @",
        that="this @", found="the @ so established",
        made="the @ resulting from it", ahead="the @ in question",
        second=". To this end, ", middle=", subsequently ", goal_first=True,
        clauses=(2, 9),
    ),
    Construction(
        "before", "test", "all",
        last_do="before you @", do="be sure to @",
        that="this @", found="the very @",
        second=", ", middle=" and to ", goal_first=True,
        clauses=(2, 2), last_kinds=("do",),
    ),
    Construction(
        "statement", "test", "all",
        that="this @", found="this very @",
        made="the @ that follows from it", middle=". ", clauses=(1, 3),
        last_kinds=("do",), do_kinds=("statement",),
        at_most="given that @ is % at the most, &",
        at_least="given that @ is % at the least, &",
        equals="given that @ is indeed %, &",
    ),
    Construction(
        "duties", "test", "all",
        state="identify @", ask="answer with @", result="answer with the resulting @",
        that="this @", found="this very @",
        made="the @ that comes of this",
        first="Here is what I am after: ",
        middle="; also ", last="; lastly, ", do_kinds=BOTH, clauses=(2, 9),
        at_most="in the event that @ is no greater than %, &",
        at_least="in the event that @ is no smaller than %, &",
        equals="in the event that @ is the same as %, &",
    ),
    Construction(
        "kindly", "test", "all",
        ask="{name|specify} @", result="specify the resulting @",
        only="Kindly ", clauses=(1, 1), indirect=False,
    ),
)  # fmt: skip
REWRITE_TRAIN = (
    Construction(
        "hey", "rewrite_train", "all",
        state="@", ask="@", result="{with|plus} the @ back", recall="say @",
        that="that same @", found="the @ that was found",
        made="the @ it returns",
        only="{hey, |hi, |}", first="{hey, |hi, |}", middle=", and after: ",
        end="{|, thanks|, thx}", terse=True, do_kinds=FRAGMENTS,
        at_most="& (but only if @ is max %)",
        at_least="& (but only if @ is min %)",
        equals="& (but only if @ = %)",
    ),
    Construction(
        "quick", "rewrite_train", "all",
        state="@", ask="@", result="{also|and} the @ i get", recall="which is @",
        that="that very @", found="the @ found a moment ago",
        made="the @ that is returned",
        only="quick one: ", first="quick one: ", middle="; ",
        end="{| pls| ty}", terse=True, do_kinds=FRAGMENTS,
        at_most="if @ <= %: &",
        at_least="if @ >= %: &",
        equals="if @ == %: &",
    ),
    Construction(
        "numbered", "rewrite_train", "none",
        state="@", ask="@", result="{gimme|drop me} the @", recall="gimme @",
        that="the @ from above", found="the @ found above",
        made="the @ returned above",
        first="{todo:|quick list:} ", middle=" -> ", end="", clauses=(2, 9),
        terse=True, do_kinds=FRAGMENTS,
    ),
    Construction(
        "need", "rewrite_train", "split",
        state="@", ask="need @", last_do="need this: @",
        result="with @ in return",
        that="the @ obtained", found="the @ found so far",
        made="the @ returned", ahead="one @",
        second=" ({start|starting} from: ", middle=" >> ", end=")",
        goal_first=True, clauses=(2, 9), terse=True, do_kinds=FRAGMENTS,
    ),
)  # fmt: skip
REWRITE_TEST = (
    Construction(
        "so", "rewrite_test", "all",
        state="@", ask="@", result="{and lemme have|lemme see} the @",
        recall="lemme see @",
        that="said @", found="the @ that turns up",
        made="the @ it makes",
        only="{so, |um, |}", first="{so, |um, |}", middle=" + ",
        end="{, asap|, cheers|}", terse=True, do_kinds=FRAGMENTS,
        at_most="& - just when @ is % tops",
        at_least="& - just when @ is % or up",
        equals="& - just when @ reads %",
    ),
    Construction(
        "note", "rewrite_test", "leaves",
        state="@", ask="@", result="along with the @", recall="write out @",
        that="said @", found="the @ you turn up",
        made="the @ made there",
        only="note: ", first="note: ", middle=" / and with that ", last=" / lastly ",
        end="", terse=True, do_kinds=FRAGMENTS,
        at_most="&, if and only if @ is at or under %",
        at_least="&, if and only if @ is at or over %",
        equals="&, if and only if @ shows %",
    ),
    Construction(
        "dashes", "rewrite_test", "none",
        state="@", ask="@", result="what @ it gives", recall="say what @ is",
        that="said @", found="the @ found there",
        made="the @ made by that",
        first="{in order|one by one} - ", middle=" - ", end="", clauses=(2, 9),
        terse=True, do_kinds=FRAGMENTS,
    ),
    Construction(
        "wanted", "rewrite_test", "split",
        state="@", ask="wanted: @", last_do="wanted: @",
        result="with @ returned",
        that="said @", found="the @ found that way",
        made="the @ made that way", ahead="some @",
        second=" / via ", middle=" / on to ", end="",
        goal_first=True, clauses=(2, 9), terse=True, do_kinds=FRAGMENTS,
    ),
)  # fmt: skip
# Constructions of the training pools that stand for unseen ones in development.
DEVELOPMENT = ("question", "purpose", "quick", "need")
CONSTRUCTIONS = (*TRAIN, *TEST, *REWRITE_TRAIN, *REWRITE_TEST)


def by_pool(divided: bool) -> dict[str, tuple[Construction, ...]]:
    """Return the constructions of each pool.

    Args:
      divided: whether the constructions of the training pools are divided again, into
        those to train on and those to test on; see `development.py`.
    """
    found: dict[str, tuple[Construction, ...]] = {}
    for pool in POOLS:
        source = pool.replace("test", "train") if divided else pool
        items = [x for x in CONSTRUCTIONS if x.pool == source]
        if divided:
            is_test = pool.endswith("test")
            items = [x for x in items if (x.name in DEVELOPMENT) == is_test]
        found[pool] = tuple(items)
    return found
