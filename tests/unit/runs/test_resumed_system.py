"""The name of a system beside ``--resume``: it is that of the run."""

import pytest

from ensue.core.errors import InputError
from ensue.core.run_folder import RunFolder
from ensue.runs.fit_settings import check_same
from ensue.runs.settings_resolution import resolve


def check(tmp_path, system, what, **flat):
    check_same(RunFolder(tmp_path), resolve(system, layers=[flat]), what, flat, {})


def test_the_command_that_made_a_run_from_another_resumes_it(tmp_path):
    check(tmp_path, "llama", "gpt", begin_with="runs/smollm2")  # fit gpt --from a llama made a llama
    check(tmp_path, "llama", "llama", begin_with="runs/smollm2")


@pytest.mark.parametrize(("what", "flat"), [("gpt", {}), ("lstm", {"begin_with": "runs/smollm2"}), ("gptt", {})])
def test_another_system_is_refused(tmp_path, what, flat):
    with pytest.raises(InputError, match=f"is a llama, not a {what}"):
        check(tmp_path, "llama", what, **flat)
