"""Ways to read a table in tests."""

from fareg.workflow import Table


def read_batches(path, *arguments, **options):
    with Table(path) as table:
        yield from table.batches(*arguments, **options)


def copy_rows(path, rows, out, **options):
    with Table(path) as table:
        table.copy(rows, out, **options)
