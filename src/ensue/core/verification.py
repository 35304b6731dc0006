"""Whether files are verified before they are read: yes, unless ``ENSUE_VERIFY=0`` is in the environment.

``--no-verify`` sets it for a command and the processes that it starts.
"""

from __future__ import annotations

import os

VERIFY = "ENSUE_VERIFY"


def verification_enabled() -> bool:
    """Return whether files are verified before they are read."""
    return os.environ.get(VERIFY, "").lower() not in ("0", "no", "false", "off")
