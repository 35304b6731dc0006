"""The tasks that label, each with its reader, its rows, its answers and its measure."""

from __future__ import annotations

from ensue.tasks.labels.answer import ANSWER
from ensue.tasks.labels.choose import CHOOSE
from ensue.tasks.labels.kind import LabelKind
from ensue.tasks.labels.tag import TAG
from ensue.tasks.labels.whole import CLASSIFY, PAIR, REGRESS

LABEL_KINDS: dict[str, LabelKind] = {kind.name: kind for kind in (CLASSIFY, PAIR, REGRESS, CHOOSE, TAG, ANSWER)}
