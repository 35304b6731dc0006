import pytest
from traces import lecture, node

from ensue.core.errors import InputError
from ensue.look.tree import read_tree


@pytest.mark.parametrize(
    "change, message",
    [
        ({"nodes": []}, "no nodes"),
        (
            {"nodes": [node(0, None, 0, "a", 0, 0, "kept"), node(0, None, 0, "b", 0, 0, "kept")]},
            "two nodes have the id 0",
        ),
        ({"nodes": [node(1, 9, 1, "a", 0, 0, "kept")]}, "no parent 9"),
        ({"nodes": [node(1, 1, 1, "a", 0, 0, "kept")]}, "no parent 1 at an earlier step"),
        ({"nodes": [node(1, None, 1, "a", 0, 0, "lost")]}, "unknown fate 'lost'; there is kept"),
        ({"nodes": [node("<b>", None, 1, "a", 0, 0, "kept")]}, "not a number"),
        ({"nodes": [{"id": 1}]}, r"nodes\[0\]: parent, step, token, .* missing"),
    ],
)
def test_errors_in_a_trace_are_reported(change, message):
    with pytest.raises(InputError, match=message):
        read_tree(lecture() | change)
