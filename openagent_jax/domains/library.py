"""The library of domains: those to train on, and those that are held out.

The two groups share no tool, type, value, or content word, apart from general words
(see `tests/domains/test_library.py`). So what a policy has learned in the one group can
be tested in the other.
"""

TRAIN = (
    "poi", "banking", "calendar", "chat", "chemistry", "energy", "farming", "git",
    "law", "library", "logistics", "mail", "museum", "school", "shop", "sport",
    "travel", "weather",
)  # fmt: skip
HELD_OUT = (
    "medical", "film", "fire_brigade", "geology", "harbor", "observatory", "sql",
    "winery",
)  # fmt: skip
# Training domains that a backbone has not met: what pretraining should be like is
# chosen by three of them, and policies are mostly trained and evaluated in `poi`.
DEV = ("calendar", "museum", "weather")
PRETRAIN = tuple(name for name in TRAIN if name not in (*DEV, "poi"))
# Domains of random words (`invented.py`), of which pretraining can have many.
INVENTED = tuple(f"invented_{seed}" for seed in range(64))
# Names that stand for all domains of a group in a list of domains.
GROUPS = {
    "all_train": TRAIN,
    "all_held_out": HELD_OUT,
    "all_pretrain": PRETRAIN,
    "all_dev": DEV,
    "all_invented": INVENTED,
}
SMALL = ("poi", "medical")  # the default limits on tokens have room for these
