"""What commands say while they work."""

import sys

from launch.common import progress


def test_one_line_a_stage_without_a_terminal(capsys):
    stages = progress.Stages(2)
    stages.begin("reading")
    stages.step("the first half")
    stages.step("the second half")
    stages.begin("writing")
    stages.end()
    said = capsys.readouterr()
    assert said.err == "reading\nwriting\n" and said.out == ""


def test_a_bar_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    stages = progress.Stages(2)
    stages.begin("reading")
    stages.step("the first half")
    stages.end()
    said = capsys.readouterr()
    assert "reading" in said.err and "1/2" in said.err and said.out == ""
    assert "reading\n" not in said.err


def test_only_a_long_evaluation_shows_its_progress(capsys, monkeypatch):
    for delay, shown in ((30.0, False), (0.0, True)):
        monkeypatch.setattr(progress, "DELAY_S", delay)
        monkeypatch.setattr(progress, "EVERY_S", 0.0)
        with progress.episodes(16) as bar:
            bar.update(12)
        said = capsys.readouterr()
        assert said.out == "" and ("evaluation:  75%" in said.err) is shown
        assert shown or said.err == ""
