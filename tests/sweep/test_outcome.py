"""From a run's record and SLURM's word to one state and one sentence."""

import pytest

from lossbench.sweep.outcome import Kind, judge
from lossbench.sweep.slurm.client import FINAL, JobState, parse_accounting

FINISHED = {"status": "finished"}
FAILED = {"status": "failed", "error": {"type": "DivergedError", "message": "the loss became nan"}}
INTERRUPTED = {"status": "interrupted", "error": None}


@pytest.mark.parametrize(
    ("result", "job", "kind"),
    [
        (FINISHED, None, Kind.FINISHED),
        (FINISHED, JobState("FAILED"), Kind.FINISHED),
        (FINISHED, JobState("RUNNING"), Kind.FINISHED),
        (FAILED, None, Kind.FAILED),
        (FAILED, JobState("FAILED"), Kind.FAILED),
        (FAILED, JobState("PENDING"), Kind.PENDING),  # tried again
        (FAILED, JobState("CANCELLED"), Kind.FAILED),
        (INTERRUPTED, None, Kind.INTERRUPTED),
        (INTERRUPTED, JobState("CANCELLED"), Kind.CANCELLED),
        (INTERRUPTED, JobState("PREEMPTED"), Kind.PREEMPTED),
        (INTERRUPTED, JobState("TIMEOUT"), Kind.TIMED_OUT),
        (INTERRUPTED, JobState("FAILED"), Kind.INTERRUPTED),
        (None, JobState("COMPLETED", exit_code="0:0"), Kind.FAILED),  # sys.exit(0)
        (None, JobState("NODE_FAIL"), Kind.NODE_LOST),
        (None, JobState("OUT_OF_MEMORY"), Kind.OUT_OF_MEMORY),
        (None, JobState("FAILED", step="OUT_OF_MEMORY"), Kind.OUT_OF_MEMORY),
        (None, JobState("GONE"), Kind.INTERRUPTED),
        (None, JobState("SUSPENDED"), Kind.RUNNING),
        (None, JobState("COMPLETING"), Kind.RUNNING),
        (None, JobState("A_STATE_OF_THE_FUTURE"), Kind.RUNNING),
        (None, None, Kind.MISSING),
    ],
)
def test_the_record_counts_first_and_slurm_knows_the_rest(result, job, kind):
    assert judge(result, started=result is not None, job=job).kind is kind


def test_a_held_job_is_said_to_be_held():
    assert judge(None, False, JobState("PENDING", "JobHeldUser")).reason == "held: JobHeldUser"


def test_out_of_memory_without_cgroups_stands_in_the_log_alone():
    log = "srun: error\nslurmstepd: error: StepId=3.0 exceeded memory limit (2 > 1), being killed\n"
    found = judge(None, True, JobState("FAILED", exit_code="137:0"), log)
    assert (found.kind, "exceeded memory limit" in found.reason) == (Kind.OUT_OF_MEMORY, True)


def test_a_job_that_could_not_write_its_log_points_to_the_file_system():
    assert "all nodes share" in judge(None, False, JobState("FAILED", exit_code="0:53")).reason


def test_the_last_line_of_the_log_is_the_reason_where_nothing_else_is_known():
    found = judge(None, False, JobState("FAILED", exit_code="127:0"), "one\n/usr/bin/nopython: not found\n\n")
    assert "exit code 127:0" in found.reason
    assert "nopython: not found" in found.reason


def test_only_listed_states_are_final():
    assert {"COMPLETED", "CANCELLED", "PREEMPTED", "TIMEOUT"} <= FINAL
    assert not {"PENDING", "RUNNING", "SUSPENDED", "REQUEUED", "COMPLETING", "CONFIGURING", "RESIZING"} & FINAL


def test_steps_tell_an_out_of_memory_kill_that_the_job_does_not_show():
    text = "7_0|FAILED|1:0|n0\n7_0.batch|FAILED|1:0|n0\n7_0.0|OUT_OF_MEMORY|0:125|n0\n7_[1-3]|PENDING|0:0|\n"
    assert parse_accounting(text) == {"7_0": JobState("FAILED", "", "n0", "1:0", "OUT_OF_MEMORY")}


def test_cancelled_by_somebody_is_cancelled():
    assert parse_accounting("9|CANCELLED by 1000|0:0|None assigned\n")["9"] == JobState("CANCELLED", "", "", "0:0")
