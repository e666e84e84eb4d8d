"""Make one page of the reports of one run or of several, side by side.

    python -m launch.report runs/paft                 its last report, as report.html
    python -m launch.report runs/sft runs/paft --out=both.html
    python -m launch.report SFT=runs/sft_0+runs/sft_1+runs/sft_2 PAFT=runs/paft
    python -m launch.report SFT=runs/sft PAFT=runs/paft --out=survival.svg

Each argument is a column: a workdir, a folder with a report.json or the file itself,
with a name before it (NAME=PATH) or without. Runs of several training seeds that are
joined by + are shown as their mean. Differences are from the first column.

The page is a single file that needs no network; docs/report.md says how to read it.
With --out=FILE.svg only the picture of success by scenario is drawn, for a page of
your own; reports that were made with different settings are refused. Reports of
different suites of scenarios are only compared with --across_suites.
"""

import sys

from absl import flags

from launch.common import cli

OUT = flags.DEFINE_string("out", "report.html", "File to write: .html, or .svg.")
ACROSS_SUITES = flags.DEFINE_bool(
    "across_suites", False, "Compare reports of different suites of scenarios."
)


def main(*runs: str) -> None:
    file = cli.check_out(OUT.value)
    if file.suffix not in (".html", ".svg"):
        raise cli.UsageError(f"--out={file} ends with neither .html nor .svg")
    from openagent_jax import files, report

    mixed = ACROSS_SUITES.value
    try:
        columns = report.columns(runs, mixed)
    except ValueError as error:
        raise cli.UsageError(str(error)) from None
    reports = {name: column.report for name, column in columns.items()}
    if not mixed and (found := report.of_different_suites(reports)):
        raise cli.UsageError(
            f"the reports are of different suites: {found}; evaluate on the same "
            "suite, or give --across_suites to show them side by side"
        )
    notes = []
    if file.suffix == ".svg":
        if found := report.differences(reports, (report.SET_HASH,) * mixed):
            raise cli.UsageError(
                f"--out={file} needs reports with the same settings, but {found}; "
                "evaluate them again with the same settings"
            )
        text = report.picture(reports)
    else:
        text, notes = report.page(columns)
    with files.replacing(file) as part:
        part.write_text(text, encoding="utf-8")
    if notes:
        print(f"launch.report: dropped: {'; '.join(notes)}", file=sys.stderr)
    print(f"report: {file}")


if __name__ == "__main__":
    cli.run(main, operands="RUN")
