"""The command `proxyhash methods`."""

import json

from rich.table import Table

from proxyhash.cli.output import SafeConsole
from proxyhash.cli.parameters import Json


def methods(*, json_: Json = False) -> None:
    """List the methods: family, year, what they learn from, and how their codes are compared.

    Methods of a file of your own are listed too:

      proxyhash methods --plugin my_method.py

    Parameters
    ----------
    json_
        Print JSON instead of a table.
    """
    from proxyhash.methods import get_method, list_methods

    found = [get_method(name) for name in list_methods()]
    columns = ("name", "title", "family", "year", "learns_from", "metric")
    if json_:
        print(json.dumps([{column: getattr(method, column) for column in columns} for method in found], indent=2))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("name", "method", "family", "year", "learns from", "metric"):
        table.add_column(heading)
    for method in found:
        table.add_row(*(str(getattr(method, column) or "") for column in columns))
    SafeConsole().print(table)
