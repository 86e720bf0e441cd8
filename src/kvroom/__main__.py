"""``python -m kvroom``."""

from kvroom.cli import main

if __name__ == "__main__":
    main()
