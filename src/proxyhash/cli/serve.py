"""`proxyhash serve`: an HTTP service and a search page for an index."""

import webbrowser
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from proxyhash.cli.output import is_quiet, print_line
from proxyhash.cli.parameters import Int
from proxyhash.utils.errors import InputError


def serve(
    index_: Annotated[str, Parameter(name="index")],
    /,
    *,
    host: str = "127.0.0.1",
    port: Int = 8000,
    allow_host: tuple[str, ...] = (),
    token_file: Path | None = None,
    threshold: float = 0.5,
    decoders: Int = 2,
    open_: Annotated[bool, Parameter(name="--open", negative=())] = False,
) -> None:
    """Serve an index: a page to search it in a browser, and a JSON API, described at /openapi.json.

      proxyhash serve photos.index
      proxyhash serve photos.index --host 0.0.0.0 --allow-host photos.example.org --token-file token

    Items added to the index later are found without a restart. Ctrl-C or SIGTERM finishes running requests first. With
    --quiet, only failures are logged.

    Parameters
    ----------
    index_
        The folder of the index.
    host
        The address to listen on; the default accepts connections from this machine only.
    port
        The port; 0 takes a free one.
    allow_host
        A host name of the service, besides localhost and IP addresses; may be given several times.
    token_file
        A file with the token that clients need to add and remove items; or set PROXYHASH_TOKEN. Without a token, the
        service is read-only.
    threshold
        The expected precision below which there is no match, where the model was calibrated.
    decoders
        Number of processes that decode images.
    open_
        Open the page in the browser.
    """
    if "://" in index_:
        raise InputError(f"The service serves the folder of an index; {index_} is on a server that answers clients itself.")
    try:
        from proxyhash.serve.access import read_token
        from proxyhash.serve.server import serve as serve_index
        from proxyhash.serve.settings import Limits, Settings
    except ModuleNotFoundError as error:
        raise InputError(f"The service needs {error.name}: pip install 'proxyhash[serve]'.") from None
    if not 0 <= port < 65_536:
        raise InputError(f"The port must be from 0 to 65535, not {port}.")
    if decoders < 1:
        raise InputError(f"There must be at least 1 decoder, not {decoders}.")
    names, limits = frozenset(name.lower() for name in allow_host), Limits(decoders=decoders)
    settings = Settings(host, port, names, read_token(token_file), threshold, not is_quiet(), limits)
    writing = "with a token, clients can write" if settings.token else "read-only"

    def listening(address: str) -> None:
        print_line(f"Serving {index_} at {address} ({writing}).")
        if open_:
            webbrowser.open(address)

    serve_index(Path(index_), settings, listening)
