"""Names with noise that can still be read: vendors, versions, case, missing vowels.

This runs on the host. Training and test have different kinds of noise.
"""

import re
import zlib

NUM_LEVELS, NUM_VARIANTS = 3, 2  # of each name

_VENDORS = ("acme", "nova", "zeta", "orbi")
_VERSIONS = ("v2", "v3", "v4", "v7")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def noisy(name: str, split: str, variant: int) -> list[str]:
    """Return a name with noise of three levels; each is further from it than the last.

    In training a name gets a version, a vendor, or both. In the test its words are
    joined in another case, and then its longest word or all of them lose vowels. A name
    without vowels to lose stays as it was on the level before.

    Args:
      name: the name of a tool.
      split: "train" or "test".
      variant: another variant differs in the vendor and the version, or in the case.

    >>> noisy("opening_hour", "train", 1)
    ['opening_hour_v4', 'zeta_opening_hour', 'zeta_opening_hour_v4']
    >>> noisy("opening_hour", "test", 0)
    ['openingHour', 'opnngHour', 'opnngHr']
    >>> noisy("opening_hour", "test", 1)
    ['Opening_Hour', 'Opnng_Hour', 'Opnng_Hr']
    """
    if split == "train":
        number = (zlib.crc32(name.encode()) + variant) % len(_VENDORS)
        vendor, version = _VENDORS[number], _VERSIONS[number]
        return [f"{name}_{version}", f"{vendor}_{name}", f"{vendor}_{name}_{version}"]
    words = re.split(r"[^A-Za-z0-9]+", name)
    has_humps = len(words) == 1 and bool(_HUMP.search(name))
    words = [x for word in words for x in _HUMP.split(word) if x]
    if not words:
        return [name] * NUM_LEVELS
    longest = max(range(len(words)), key=lambda i: len(words[i]))
    one = [_short(x) if i == longest else x for i, x in enumerate(words)]
    written = (words, one, [*map(_short, words)])
    return [_cased(x, has_humps, variant) for x in written]


def _short(word: str) -> str:
    """Return a word without its vowels, but for the first letter."""
    short = word[0] + re.sub("[aeiou]", "", word[1:])
    return short if len(word) > 3 and len(short) > 1 else word


def _cased(words: list[str], has_humps: bool, variant: int) -> str:
    """Return words as a name; one with humps gets none, and any other gets some."""
    if has_humps:
        return ("_", "-")[variant].join(words).lower()
    titled = [x[0].upper() + x[1:] for x in words]
    if variant or len(words) == 1:
        return "_".join(titled)
    return "".join([words[0], *titled[1:]])
