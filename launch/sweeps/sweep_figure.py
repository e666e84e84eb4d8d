"""The figure of a sweep: each column of its table, with intervals and seeds."""

from pathlib import Path

from launch.sweeps.sweep_page import Results
from openagent_jax import files


def write(results: Results, file: Path) -> None:
    """Draw the table: a panel for each column, a row for each setting.

    A dot is the mean over seeds, with its interval of 95 %; small circles are seeds.
    The line is the mean of the base.
    """
    # Imported here because most commands draw nothing.
    import matplotlib
    from matplotlib.figure import Figure

    plan, names = results.plan, [*results.reports]
    panels = results.rates
    titles = [plan.settings[name].title or name for name in names]
    num_columns = min(len(panels), 4)
    num_rows = -(-len(panels) // num_columns)
    # Text stays text, and identifiers are the same in every file.
    with matplotlib.rc_context(
        {"svg.fonttype": "none", "svg.hashsalt": "sweep", "font.size": 9}
    ):
        height = num_rows * (0.8 + 0.28 * len(names))
        figure = Figure((2.3 * num_columns + 1.5, height), layout="constrained")
        grid = figure.subplots(
            num_rows, num_columns, sharex=True, sharey=True, squeeze=False
        )
        axes = [*grid.flat]
        for ax, (column, rates) in zip(axes, panels.items(), strict=False):
            for y, (name, rate) in enumerate(rates.items()):
                if rate is None:
                    continue
                mean, color = 100 * rate["mean"], "C1" if name == plan.base else "C0"
                if rate["low"] is not None:
                    ends = 100 * rate["low"], 100 * rate["high"]
                    ax.plot(ends, [y, y], color=color, linewidth=2)
                ax.plot(mean, y, "o", color=color)
                found = column.outcomes(results.pooled[name])
                if found and found.num_seeds > 1:
                    seeds = 100 * found.rates
                    ax.plot(seeds, [y] * len(seeds), "o", mfc="none", mec="0.4", ms=3)
                if name == plan.base:
                    ax.axvline(mean, color=color, linewidth=0.8, linestyle=":")
            ax.set_title(column.heading, fontsize=9)
            ax.set_xlim(-2, 102)
            ax.grid(axis="x", alpha=0.3)
        for ax in axes[len(panels) :]:
            ax.set_visible(False)
        for ax in axes[max(len(panels) - num_columns, 0) : len(panels)]:
            ax.tick_params(labelbottom=True)
        axes[0].set_yticks(range(len(names)), titles)
        axes[0].set_ylim(len(names) - 0.5, -0.5)
        figure.supxlabel("percent of tasks, with 95 % intervals")
        with files.replacing(file) as part:
            figure.savefig(part, format="svg", metadata={"Date": None})
