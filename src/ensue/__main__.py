"""The command ``ensue``, also as ``python -m ensue``."""

import sys


def main() -> None:
    """Run the command; Ctrl-C before it is loaded ends it with one line, as later."""
    try:
        from ensue.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("\nensue: stopped; no partial output was left behind\n")
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
