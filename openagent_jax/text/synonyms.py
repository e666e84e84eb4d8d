"""Tables of synonyms: verbs and nouns of tools, and templates for requests.

The words of the training split and those of the test split share nothing.
"""

from typing import NamedTuple


class Verb(NamedTuple):
    """A group of verbs with about the same meaning.

    Attributes:
      words: the verbs that are recognised as this group, separated by blanks.
      train: synonyms for the training split.
      test: synonyms for the test split.
      effect: whether a tool that does this changes something.
    """

    words: str
    train: str
    test: str
    effect: bool = False


VERBS = (
    Verb("get fetch read load retrieve give return tell", "fetch load", "obtain pull"),
    Verb("show view display describe inspect", "show view", "present inspect"),
    Verb("find search lookup locate discover query", "find search", "locate seek"),
    Verb("list browse enumerate", "list gather", "enumerate survey"),
    Verb("check verify validate test confirm", "check examine", "verify review"),
    Verb("count", "count number", "tally total"),
    Verb("compute calculate estimate", "compute estimate", "calculate derive"),
    Verb("convert translate", "convert change", "translate turn"),
    Verb("compare", "compare contrast", "match weigh"),
    Verb("track monitor watch follow", "track follow", "monitor trace"),
    Verb("summarize summarise", "summarize shorten", "digest condense"),
    Verb("create make generate open start", "create open", "make set_up", True),
    Verb("add append insert attach", "add put", "append attach", True),
    Verb("update edit change modify set adjust", "update edit", "change modify", True),
    Verb("delete remove drop erase clear", "delete remove", "erase drop", True),
    Verb("cancel abort revoke void", "cancel revoke", "call_off void", True),
    Verb("close resolve finish complete end stop", "close finish", "end wrap_up", True),
    Verb("book reserve hold", "book reserve", "secure hold", True),
    Verb("order buy purchase", "order buy", "purchase acquire", True),
    Verb("pay charge bill", "pay charge", "settle bill", True),
    Verb("refund reimburse", "refund repay", "reimburse credit", True),
    Verb("send submit post publish email notify", "send submit", "post deliver", True),
    Verb("invite", "invite ask", "summon call", True),
    Verb("reply respond answer comment", "reply respond", "answer react", True),
    Verb("save store write record log", "save store", "write keep", True),
    Verb("move transfer migrate", "move transfer", "shift relocate", True),
    Verb("copy clone duplicate fork", "copy clone", "duplicate replicate", True),
    Verb("rename", "rename retitle", "relabel call", True),
    Verb("assign allocate delegate", "assign allot", "allocate delegate", True),
    Verb("approve accept", "approve accept", "grant allow", True),
    Verb("reject deny decline", "reject deny", "decline refuse", True),
    Verb("schedule plan", "schedule plan", "arrange time", True),
    Verb("register enroll subscribe", "register enroll", "sign_up subscribe", True),
    Verb("unsubscribe unregister", "unsubscribe leave", "unregister quit", True),
    Verb("enable activate", "enable activate", "switch_on allow", True),
    Verb("disable deactivate", "disable deactivate", "switch_off block", True),
    Verb("lock block", "lock block", "shut seal", True),
    Verb("unlock unblock", "unlock unblock", "release free", True),
    Verb("upload import", "upload import", "bring_in feed", True),
    Verb("download export", "download export", "take_out save"),
    Verb("archive", "archive shelve", "store_away file", True),
    Verb("restore reset restart", "restore reset", "bring_back restart", True),
    Verb("run execute trigger launch perform", "run execute", "trigger launch", True),
    Verb("merge join", "merge join", "combine unite", True),
    Verb("renew extend", "renew extend", "prolong continue", True),
    Verb("escalate", "escalate raise", "pass_up forward", True),
    Verb("place issue", "place issue", "put_in lodge", True),
    Verb("turn switch", "turn switch", "flip toggle", True),
    Verb("apply", "apply attach", "put bring", True),
    Verb("navigate", "navigate go", "head move", True),
    Verb("play", "play start", "run put_on", True),
    Verb("capture", "capture take", "grab record"),
    Verb("wait", "wait pause", "hold stay"),
)
# Verbs that are also nouns: at the start of a name, only a description can tell which.
VERBS_OR_NOUNS = set(
    "order book place post email open record log comment answer charge bill hold test "
    "query list set plan schedule issue block lock copy end start view display count "
    "return change drop purchase refund file match track turn switch play capture "
    "wait".split()
)
# Noun -> (synonym for training, synonym for the test).
NOUNS = {
    "order": ("purchase", "acquisition"),
    "customer": ("client", "buyer"),
    "user": ("member", "account_holder"),
    "account": ("profile", "membership"),
    "ticket": ("case", "incident"),
    "book": ("volume", "publication"),
    "product": ("item", "article"),
    "item": ("article", "piece"),
    "status": ("state", "condition"),
    "price": ("cost", "charge"),
    "message": ("note", "letter"),
    "email": ("mail", "e_mail"),
    "file": ("document", "record"),
    "document": ("file", "paper"),
    "city": ("town", "municipality"),
    "place": ("spot", "location"),
    "location": ("place", "position"),
    "date": ("day", "calendar_day"),
    "time": ("hour", "moment"),
    "name": ("label", "title"),
    "title": ("heading", "caption"),
    "number": ("no", "ref"),
    "quantity": ("amount", "units"),
    "amount": ("sum", "total"),
    "id": ("number", "key"),
    "agent": ("clerk", "operator"),
    "employee": ("worker", "staff_member"),
    "team": ("group", "crew"),
    "room": ("chamber", "suite"),
    "hotel": ("inn", "lodging"),
    "flight": ("plane_trip", "air_journey"),
    "booking": ("reservation", "appointment"),
    "appointment": ("visit", "meeting"),
    "meeting": ("session", "gathering"),
    "event": ("occasion", "happening"),
    "task": ("job", "assignment"),
    "issue": ("problem", "matter"),
    "comment": ("remark", "note"),
    "subject": ("topic", "theme"),
    "priority": ("urgency", "rank"),
    "article": ("page", "entry"),
    "invoice": ("bill", "statement"),
    "payment": ("transaction", "settlement"),
    "weather": ("climate", "forecast"),
    "stock": ("inventory", "supply"),
    "phone": ("telephone", "mobile"),
    "reason": ("cause", "motive"),
    "text": ("words", "wording"),
    "query": ("question", "terms"),
}
# For arguments and tools whose names have none of the words above.
ARGUMENT_TEMPLATES = {"train": ("{}_value", "the_{}"), "test": ("{}_field", "given_{}")}
TOOL_TEMPLATES = {
    "train": ("{}_tool", "do_{}"),
    "test": ("{}_service", "perform_{}"),
}
DESCRIPTION_TEMPLATES = {
    "train": ("Use it to {}", "A tool to {}", "It serves to {}"),
    "test": ("With this one can {}", "For whoever wants to {}", "Meant to {}"),
}
REQUEST_TEMPLATES = {
    "train": (
        "Please {}.",
        "I need you to {}.",
        "Can you {}?",
        "I want to {}.",
        "Go and {}.",
        "Help me {}.",
        "Let us {}.",
        "You should {}.",
    ),
    "test": (
        "Could somebody {}?",
        "My wish is to {}.",
        "Now {}.",
        "Would it be possible to {}?",
        "Be so good as to {}.",
    ),
    "rewrite_train": (
        "hi there, {}, thanks a lot",
        "{} please",
        "kindly now, {}",
        "gimme this, {}",
        "ok so {}",
    ),
    "rewrite_test": (
        "um, {}?",
        "so, {}, quick",
        "{}, cheers",
        "be nice, {}",
        "{} asap",
    ),
}
# A pattern of the words with which many descriptions begin, before the verb.
LEAD_IN = (
    r"(this|the) (tool|function|method|endpoint|api|call)( is| can be)?( used)?"
    r"( to| for| that| which)?"
    r"|(please )?use (this|it)( tool| function)? (to|for|when you want to)"
    r"|(a |an )?(tool|function|utility) (to|for|that|which)"
    r"|(it )?(allows|lets|enables|helps)( you| users| the user)?( to)?"
    r"|(can be )?used (to|for)"
)
FUNCTION_WORDS = set("a an the of for to in on at with from and or one its".split())
