"""What clients are told shows names, never folders."""

from pathlib import Path

import pytest

from ensue.serve.path_names import PathNames

NAMES = PathNames({"lstm": Path("/home/ada l/runs/lstm"), "lstm-2": Path("/home/ada l/runs/lstm-2")})


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/ada l/runs/lstm: it has no attention", "lstm: it has no attention"),
        ("/home/ada l/runs/lstm-2: it has no attention", "lstm-2: it has no attention"),
        ("cannot read /home/ada l/data/a.txt", "cannot read data/a.txt"),
        ("cannot read '/etc/ssl/private/a.key'", "cannot read 'a.key'"),
        ("cannot read /srv/models/; choose another", "cannot read …; choose another"),
        (r"cannot read C:\Users\ada\a.txt", "cannot read a.txt"),
        ("3/4 of and/or http://localhost/a/b, n/a", "3/4 of and/or http://localhost/a/b, n/a"),
    ],
)
def test_messages_show_no_folder(text, shown):
    assert NAMES.message(text) == shown


def test_folders_are_replaced_in_nested_values_and_other_texts_stay():
    value = {"/home/ada l/runs/lstm": [{"run": "/home/ada l/runs/lstm-2", "text": "ls /usr/bin/env", "n": 1}]}
    assert NAMES.replace(value) == {"lstm": [{"run": "lstm-2", "text": "ls /usr/bin/env", "n": 1}]}
