r"""Two things that are read from the English of a logged conversation.

`refuses` tells whether a final text of the agent is a refusal in its own words, and
`asks` whether a user asked for something to be told. Both go by lists of words, and
both would rather miss a case than see one that is not there: a text in another language
is not a refusal, and asks nothing unless it has a question mark.

A refusal is a text

* whose first sentence, after an apology, says that the agent or its tools cannot do it:
  "I can't ...", "I'm unable to ...", "I have no tool ...", "There is no way to ...",
  "None of my tools ...", "That is not something I can do";
* that has no question mark and no condition ("until you confirm", "without the number",
  "please provide"): then the agent waits for the user;
* that does not go on with something else ("but ...", "so I ..."), and is not about this
  moment only ("right now", "try again");
* that does not say only that something was not found ("I can't find the order"), and is
  no figure of speech ("I can't wait").

A request asks for something to be told if one of its sentences

* has a question mark, unless it only asks to do something ("Could you ship it?") or for
  agreement ("OK?");
* has a question word ("what", "when", "how many", ...) at the beginning of a clause, or
  after a word such as "tell", "know" or "check";
* has an imperative that asks to tell ("tell", "show", "give", "list", "report", ...) at
  the beginning of a clause;
* has, as its last imperative, one that asks to look ("find", "look up", "check",
  "get", ...): "Find the order and ship it." does not ask for the order.
"""

import re

_APOLOGY = (
    r"(?:(?:(?:oh|hi|hello|well|hm+|unfortunately|regrettably|sadly|sorry|apologies|"
    r"my apologies|no|thanks?(?: you)?(?: for [^.,!]*(?=[.,!]))?|"
    r"(?:i am|i'm|we are|we're)(?: very| so| really| truly)? (?:sorry|afraid)|"
    r"as an ai(?: \w+){0,2}|i apologi[sz]e)\b"
    r"(?: for (?:the|that|this|any) [^.,!]*(?=[.,!]))?[\s,.!:;-]*"
    r"(?:but |that |and |however,? )?)*)"
)
_HAVE_NOT = r"(?:have no|do not have|don't have|lack|have not got|haven't got)"
_MEANS = (
    r"(?:tools?|functions?|way|ways|means|access|ability|abilities|capability|"
    r"capabilities|permission|possibility|option)"
)
_REFUSALS = "|".join(
    (
        r"(?:i|we)(?: currently| also| really| simply| just)? "
        r"(?:cannot|can't|can not|won't be able to|will not be able to)\b",
        r"(?:i am|i'm|we are|we're)(?: currently| also)? "
        r"(?:unable to|not able to|not in a position to|incapable of)\b",
        rf"(?:i|we)(?: currently| also)? {_HAVE_NOT}(?: \w+){{0,3}} {_MEANS}\b",
        rf"there(?: is|'s| are| isn't| aren't)(?: no| not| any| a)+(?: \w+){{0,2}} "
        rf"{_MEANS}\b",
        rf"no (?:\w+ )?{_MEANS} (?:for|to|that|here|is available|exists)\b",
        rf"none of (?:my|the|these|our)(?: \w+)? {_MEANS}\b",
        rf"(?:my|the|these|our)(?: available| given)? {_MEANS} "
        r"(?:cannot|can't|can not|do not|don't|does not|doesn't) "
        r"(?:allow|let|support|cover|do|offer|provide|help)\b",
        r"(?:that|this|it)(?: is|'s)(?: not|n't) "
        r"(?:something (?:that )?(?:i|we) can|possible (?:for me|with))\b",
    )
)
_REFUSAL = re.compile(rf"{_APOLOGY}(?:{_REFUSALS})", re.I)
# What follows "can't" where nothing is refused.
_NO_REFUSAL = re.compile(
    r"(?:cannot|can't|can not|unable to|not able to) (?:currently |yet )?"
    r"(?:find|see|locate|identify|recogni[sz]e|think|tell|say|wait|thank|stress|"
    r"emphasi[sz]e|imagine|believe|help but|recommend|agree|complain|promise|rule)\b",
    re.I,
)
_WAITS = re.compile(
    r"\?|\b(?:unless|until|without|before (?:i|you)|once you|if you (?:give|tell|send|"
    r"provide|share|confirm|let|could|can|would)|please (?:provide|share|give|tell|"
    r"send|confirm|specify|clarify|let)|let me know (?:wh|your|the)|right now|yet|"
    r"at the moment|try(?:ing)? again|later)\b",
    re.I,
)
_INSTEAD = re.compile(
    r"\b(?:but|however)\b|\b(?:so|instead|therefore)\b,? (?:i|we)\b"
    r"(?! (?:can|could|am|do)\b| cannot| can't| don't)",
    re.I,
)

_CLAUSE = re.compile(
    r"[,;:()\n]|\b(?:and|then|or|but|also|please|kindly|to|you|i|me)\b|-\s", re.I
)
_QUESTION_WORD = r"(?:what|when|where|which|who|whom|whose|why|how)(?:'s|'re)?\b"
_KNOWS = (
    r"(?:tell|know|say|check|see|find out|ask|show|me|us|about|explain|wonder\w*|"
    r"curious|sure|on|of|at|by|in|for|from|to|with)"
)
_ASKS = re.compile(
    rf"(?:^|[,;:()\n-] ?|\b(?:and|or|but|so|then|also|please|{_KNOWS}) )"
    rf"{_QUESTION_WORD}|\b(?:whether|i'd like to know|i (?:want|need) to know|"
    r"let me know|wonder(?:ing)? if|interested in|looking for)\b",
    re.I,
)
_TELL = re.compile(
    r"(?:tell|show(?! up)|give|list|report|say|name|state|explain|describe|"
    r"summari[sz]e|display|provide|calculate|compute|count (?:the|all|how)|compare|"
    r"return (?:only )?(?:the |its |all )?(?:state|status|value|price|number|name|"
    r"result|answer|date|time|list|id)s?)\b",
    re.I,
)
_LOOK = re.compile(
    r"(?:find|look|check(?! in\b| out\b)|get(?!.*ed\b)|fetch|read|search|retrieve|"
    r"see|query|determine|identify|estimate|convert|translate|verify|track|work out|"
    r"figure)\b",
    re.I,
)
# Words that may stand before an imperative, and those with which no imperative begins.
_FILLER = re.compile(
    r"(?:please|kindly|can|could|would|will|want|need|like|d|just|now|first|next|"
    r"finally|hi|hello|hey|thanks|thank|mind|also|we)\b",
    re.I,
)
_NO_VERB = re.compile(
    r"\W*(?:(?:the|an?|is|are|was|am|for|of|in|on|at|it|its|that|this|with|from|by|if|"
    r"my|me|us|all|any|one|some)\b|\d)|\W*$",
    re.I,
)
_REQUESTS = re.compile(
    r"(?:\W|\b(?:and|so|then|please|hi|hello|hey|now|but)\b)*"
    r"(?:can|could|would|will|may|shall|should|won't|can't) (?:you|i|we)\b",
    re.I,
)
_AGREES = re.compile(
    r"(?:\w+\W+)?(?:ok|okay|right|alright|yes|no|please|thanks|deal|correct|"
    r"understood)\W*\?",
    re.I,
)
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")


def refuses(text: str) -> bool:
    """Tell whether a final text of an agent is a refusal in its own words.

    >>> refuses("Sorry, I have no tool for that."), refuses("I can't find A-17.")
    (True, False)
    """
    text = _plain(text)
    first = _REFUSAL.match(text)
    if not first or _WAITS.search(text) or _INSTEAD.search(text, first.end()):
        return False
    return not _NO_REFUSAL.search(text[: first.end() + 30])


def asks(text: str) -> bool:
    """Tell whether a user asks for something to be told, rather than only done.

    >>> asks("The state of B-20?"), asks("Please ship order A-17 to Oslo.")
    (True, False)
    """
    return any(_asks(x) for x in _SENTENCE.split(_plain(text)) if x)


def _asks(sentence: str) -> bool:
    if _ASKS.search(sentence):
        return True
    if sentence.endswith("?"):
        if not (_REQUESTS.match(sentence) or _AGREES.fullmatch(sentence)):
            return True
    imperatives = [_imperative(clause) for clause in _CLAUSE.split(sentence)]
    imperatives = [x for x in imperatives if not _NO_VERB.match(x)]
    if any(_TELL.match(word) for word in imperatives):
        return True
    return bool(imperatives) and bool(_LOOK.match(imperatives[-1]))


def _imperative(clause: str) -> str:
    """Return a clause from its first word on that may be an imperative."""
    clause = clause.strip()
    while found := _FILLER.match(clause):
        clause = clause[found.end() :].lstrip(" '\"")
    return clause


def _plain(text: str) -> str:
    """Return a text with plain apostrophes and hyphens, and single blanks."""
    text = text.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    text = re.sub("[\N{EN DASH}\N{EM DASH}]", "-", text)
    return re.sub(r"[ \t]+", " ", text).strip(' \t\n*_>"')
