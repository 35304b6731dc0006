"""Look up the versions of constraints.txt in an index of known vulnerabilities, with pip-audit.

    .venv-audit/bin/python tools/audit.py

Exit code 1 if what ensue needs (requirements.lock) has one; those of packages that only tests need are listed. Where no
index is reachable nothing can be checked: that is said, and is no error.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMMAND = ("-m", "pip_audit", "--disable-pip", "--no-deps", "--progress-spinner", "off", "--format", "json")


def audit(requirements: Path) -> list[dict[str, object]]:
    """The packages that an index knows, each with its vulnerabilities; none if no index was reached."""
    done = subprocess.run(
        [sys.executable, *COMMAND, "-r", str(requirements)], capture_output=True, text=True, check=False
    )
    try:
        found = json.loads(done.stdout)["dependencies"]
    except ValueError:
        return []
    return [one for one in found if "skip_reason" not in one]


def main() -> None:
    """Print what was found."""
    locked = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    own = set(re.findall(r"^([a-z0-9-]+)==", locked, re.MULTILINE))
    known = audit(ROOT / "constraints.txt")
    if not known:
        sys.stdout.write("note: no index of vulnerabilities is reachable from here, so nothing was checked\n")
        return
    failed = False
    for package in (package for package in known if package["vulns"]):
        needed = str(package["name"]).lower() in own
        names = ", ".join(one["id"] for one in package["vulns"])  # type: ignore[attr-defined]
        sys.stdout.write(f"{package['name']} {package['version']}{'' if needed else ' (tests only)'}: {names}\n")
        failed |= needed
    sys.stdout.write(f"{len(known)} packages were checked\n")
    sys.exit(int(failed))


if __name__ == "__main__":
    main()
