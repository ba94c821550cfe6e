import pytest

from lossbench.progress import ProgressDisplay


def test_a_log_gets_a_line_now_and_then_not_one_a_step(capsys: pytest.CaptureFixture[str]):
    with ProgressDisplay("focal-s0") as display:
        display.phase("training", 200)
        for step in range(1, 201):
            display.update(step, f"loss {step}")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 10
    assert lines[0] == "focal-s0: training 20/200 loss 20"
    assert lines[-1] == "focal-s0: training 200/200 loss 200"


def test_a_new_phase_begins_when_an_evaluation_says_so(capsys: pytest.CaptureFixture[str]):
    with ProgressDisplay("r") as display:
        display.on_progress("generate", 4, 4, 1234.5)
        display.on_progress("score", 4, 4, 10.0)
    assert capsys.readouterr().err.splitlines() == ["r: generate 4/4 1,234 tokens/s", "r: score 4/4 10 tokens/s"]


def test_progress_can_be_turned_off(capsys: pytest.CaptureFixture[str]):
    with ProgressDisplay("r", enabled=False) as display:
        display.phase("training", 1)
        display.update(1)
    assert not capsys.readouterr().err
