"""``python -m ensue`` is ``ensue``."""

from ensue.cli.main import main

if __name__ == "__main__":
    main()
