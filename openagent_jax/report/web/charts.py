"""Charts of the page, drawn by matplotlib as SVG with real text.

Colours are variables of the page's style sheet, so that one picture serves light and
dark: each is drawn in a colour of its own, which is replaced in the source afterwards.
A chart is as wide as a phone; a wider page puts several side by side.
"""

import html
import io
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

WIDTH = 400  # of the charts of the page, in pixels of a phone
WIDE = 640  # of a picture that stands alone
VARIABLES = ("ink", "soft", "line", "page", "c0", "c1", "c2", "c3", "c4")
COLOURS = {name: f"#0{i:x}0{i:x}0{i:x}" for i, name in enumerate(VARIABLES, 1)}
MARKERS = "osD^v"  # so that columns are told apart without colours
NUM_STYLES = len(MARKERS)
BOUND = -1  # the style of bounding agents
# Text and lines of a picture that stands alone; the page defines them for its own.
STYLE = """
svg { --ink: #1c2126; --soft: #606a74; --line: #e1e5e9; --page: #fff; --c0: #2f6fb7;
  --c1: #c2661a; --c2: #14806f; --c3: #8a55a8; --c4: #b3423a }
@media (prefers-color-scheme: dark) { svg { --ink: #e4e7ea; --soft: #9aa4ae;
  --line: #343a40; --page: #16191c; --c0: #7db0ea; --c1: #efa25c; --c2: #5fc4b1;
  --c3: #c39be0; --c4: #ee8d84 } }
text { font-family: system-ui, sans-serif }
"""
_RIGHT, _TOP, _BOTTOM = 44, 6, 24  # margins; the left one is as wide as labels
_LETTER = 6.2  # width of a letter, at most about
_ROW, _GAP = 15, 9  # height of a point, and between rows


class Point(NamedTuple):
    """A rate, with its interval if it has one, and that of each seed."""

    mean: float
    low: float | None = None
    high: float | None = None
    seeds: Sequence[float] = ()
    style: int = 0  # of the column


class Row(NamedTuple):
    """A labelled line of a chart, with a point for each column that has one."""

    label: str
    points: Sequence[Point | None]
    strong: bool = False


class Curve(NamedTuple):
    """The points of a column at several strengths."""

    strengths: Sequence[float]
    points: Sequence[Point]
    style: int
    name: str


def dots(title: str, rows: Sequence[Row], names: Sequence[str] = ()) -> str:
    """Draw rates as dots with intervals, one row below the other, in percent.

    Args:
      title: what is shown.
      rows: the rows, from top to bottom; one without points is a heading.
      names: of the columns, for a picture that stands alone: it names them, and has a
        style of its own.
    """
    most = max((len(r.points) for r in rows), default=1)
    heights = [_ROW * max(len(r.points), 1) + _GAP for r in rows]
    top = _TOP + 18 * bool(names)
    left = round(16 + _LETTER * max((len(r.label) for r in rows), default=0))
    size = WIDE if names else WIDTH, sum(heights) + top + _BOTTOM
    figure, axes = _axes(size, left, _RIGHT, top, _BOTTOM)
    places, y = [], _GAP / 2
    for row, height in zip(rows, heights, strict=True):
        places.append(y + (height - _GAP) / 2)
        for i, point in enumerate(row.points):
            _point(axes, point, y + _ROW * (i + 0.5), most > 1)
        y += height
    if names:
        _name_columns(axes, names, -left / (size[0] - left - _RIGHT))
    axes.set(xlim=(0, 100), ylim=(y - _GAP / 2, 0), xticks=range(0, 101, 25))
    axes.set_xticklabels(["0", "25", "50", "75", "100 %"])
    axes.set_yticks(places, [r.label for r in rows])
    for row, text in zip(rows, axes.get_yticklabels(), strict=True):
        text.set(color=COLOURS["ink"], weight="bold" if row.strong else "normal")
    axes.grid(axis="x", color=COLOURS["line"], linewidth=1)
    told = "; ".join(f"{r.label.strip()}: {_told(r.points)}" for r in rows)
    return _svg(figure, title, told, bool(names))


def curves(title: str, lines: Sequence[Curve]) -> str:
    """Draw success over the strength of a perturbation, with bands for intervals."""
    figure, axes = _axes((WIDTH, 210), 50, 12, 10, 36)
    for line in lines:
        colour, marker = _style(line.style)
        means = [100 * p.mean for p in line.points]
        if all(p.low is not None and p.high is not None for p in line.points):
            low, high = (
                [100 * getattr(p, k) for p in line.points] for k in ("low", "high")
            )
            axes.fill_between(
                line.strengths, low, high, color=colour, alpha=0.16, linewidth=0
            )
        axes.plot(
            line.strengths, means, color=colour, marker=marker, markersize=4.5, zorder=3
        )
    axes.set(xlim=(-0.03, 1.03), ylim=(0, 102), yticks=range(0, 101, 25))
    axes.set_xlabel("strength", color=COLOURS["soft"], fontsize=11)
    axes.set_yticks(range(0, 101, 25), ["0", "25", "50", "75", "100 %"])
    axes.grid(axis="y", color=COLOURS["line"], linewidth=1)
    told = "; ".join(
        f"{line.name}: "
        + ", ".join(
            f"{100 * p.mean:.0f} % at {x:g}"
            for x, p in zip(line.strengths, line.points, strict=True)
        )
        for line in lines
    )
    return _svg(figure, title, told)


def _point(axes: Any, point: Point | None, y: float, small: bool) -> None:
    if point is None:
        return
    (colour, marker), x = _style(point.style), 100 * point.mean
    if point.low is not None and point.high is not None:
        ends = [100 * point.low, 100 * point.high]
        axes.plot(ends, [y, y], color=colour, linewidth=1.8, zorder=2)
    for seed in point.seeds:
        axes.plot(
            100 * seed,
            y,
            "o",
            markersize=3.6,
            markerfacecolor=COLOURS["page"],
            markeredgecolor=colour,
            markeredgewidth=1,
            zorder=3,
        )
    size, edge = (11, 2) if point.style == BOUND else (6 if small else 7, 1)
    axes.plot(x, y, marker, color=colour, ms=size, mew=edge, zorder=4)
    text = axes.annotate(
        f"{x:.1f}",
        (1, y),
        (8, 0),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        va="center",
        fontsize=11,
    )
    text.set_color(colour if small else COLOURS["ink"])


def _style(style: int) -> tuple[str, str]:
    """Return the colour and the marker of a column, or of a bounding agent."""
    if style == BOUND:
        return COLOURS["soft"], "|"
    number = style % NUM_STYLES
    return COLOURS[f"c{number}"], MARKERS[number]


def _name_columns(axes: Any, names: Sequence[str], left: float) -> None:
    """Write the names of the columns above a chart, each with its marker."""
    handles = []
    for i in range(len(names)):
        colour, marker = _style(i)
        handles += axes.plot([], [], marker, color=colour, markersize=6)
    axes.legend(
        handles,
        names,
        loc="lower left",
        bbox_to_anchor=(left, 1),
        ncols=len(names),
        frameon=False,
        fontsize=11,
        handletextpad=0.2,
        columnspacing=1.2,
        labelcolor=COLOURS["ink"],
        borderaxespad=0.1,
    )


def _axes(size: tuple[int, int], left: int, right: int, top: int, bottom: int):
    """Return a figure and its axes, with margins in pixels."""
    from matplotlib.figure import Figure  # loads slowly, and tables do not need it

    width, height = size
    figure = Figure((width / 72, height / 72), dpi=72)
    inner = (width - left - right) / width, (height - top - bottom) / height
    axes = figure.add_axes((left / width, bottom / height, *inner))
    axes.set_axisbelow(True)
    axes.patch.set_visible(False)
    figure.patch.set_visible(False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.tick_params(length=0, labelsize=11, labelcolor=COLOURS["soft"])
    axes.tick_params("y", pad=8)
    return figure, axes


def _told(points: Sequence[Point | None]) -> str:
    return ", ".join(f"{100 * p.mean:.1f} %" for p in points if p) or "none"


def _svg(figure: Any, title: str, told: str, alone: bool = False) -> str:
    """Return the source of a figure, the same for the same figure."""
    import matplotlib
    from matplotlib.text import Text

    found = io.StringIO()
    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": f"{title}{told}"}
    with matplotlib.rc_context(settings):
        for artist in figure.findobj():
            artist.set_clip_on(False)
            if isinstance(artist, Text):
                artist.set_parse_math(False)  # names may have dollar signs
        figure.savefig(found, format="svg", metadata={"Date": None})
    source = found.getvalue()
    source = source[source.index("<svg") :].rstrip()
    source = re.sub(r"\s*<metadata>.*?</metadata>", "", source, flags=re.DOTALL)
    source = re.sub(r'<g id="[^"]*"', "<g", source)
    # The reader's own font is used, and the page's rules.
    source = re.sub(r"font-family: [^;]*; ", "", source)
    source = re.sub(r"<style.*?</style>", "", source, flags=re.DOTALL)
    for name, colour in COLOURS.items():
        source = source.replace(colour, f"var(--{name})")
    size = re.search(r'viewBox="([^"]*)"', source)
    assert size
    source = source.replace("xlink:href", "href")
    space = ' xmlns="http://www.w3.org/2000/svg"' if alone else ""
    head = (
        f'<svg{space} viewBox="{size[1]}" role="img">\n'
        f"<title>{html.escape(title)}</title>\n<desc>{html.escape(told)}</desc>"
    )
    if alone:
        head += f'\n<style>{STYLE}</style>\n<rect width="100%" height="100%" '
        head += 'fill="var(--page)"/>'
    return head + source[source.index(">") + 1 :] + "\n"
