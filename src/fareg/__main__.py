"""``python -m fareg`` is the command line."""

from fareg.cli import app

if __name__ == "__main__":
    app(prog_name="fareg")
