"""`proxyhash serve`: an HTTP service and a search page for an index."""

import warnings
import webbrowser
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from proxyhash.cli.output import is_quiet, print_line
from proxyhash.cli.parameters import Device, Int
from proxyhash.models.device import find_device
from proxyhash.utils.errors import InputError, ProxyhashWarning


def serve(
    index_: Annotated[str, Parameter(name="index")],
    /,
    *,
    host: str = "127.0.0.1",
    port: Int = 8000,
    workers: Int = 1,
    allow_host: tuple[str, ...] = (),
    allow_origin: tuple[str, ...] = (),
    trust_proxy: tuple[str, ...] = (),
    root_path: str = "",
    token_file: Path | None = None,
    ssl_certfile: Path | None = None,
    ssl_keyfile: Path | None = None,
    http: Literal["httptools", "h11"] = "httptools",
    threshold: float = 0.5,
    decoders: Int = 2,
    device: Device = "auto",
    open_: Annotated[bool, Parameter(name="--open", negative=())] = False,
) -> None:
    """Serve an index: a page to search it in a browser, and a JSON API, described at /docs.

      proxyhash serve photos.index
      proxyhash serve photos.index --host 0.0.0.0 --allow-host photos.example.org --token-file token

    Items added to the index later are found without a restart. Ctrl-C or SIGTERM finishes running requests first. With
    --quiet, only failures are logged.

    Parameters
    ----------
    index_
        The folder of the index, or an address such as milvus://host:19530/photos.
    host
        The address to listen on; the default accepts connections from this machine only.
    port
        The port; 0 takes a free one.
    workers
        Number of server processes, each with its own search process and decoders; more than 1 helps on machines with
        more than 4 cores.
    allow_host
        A host name of the service, besides localhost and IP addresses; may be given several times.
    allow_origin
        An origin whose pages may use the API (CORS), such as https://example.org; may be given several times.
    trust_proxy
        Address of a proxy whose X-Forwarded-For and X-Forwarded-Proto headers are believed; may be given several times.
    root_path
        Path below which a proxy shows the service, such as /photos.
    token_file
        A file with the token that clients need to add and remove items; or set PROXYHASH_TOKEN. Without a token, the
        service is read-only.
    ssl_certfile
        Certificate for TLS.
    ssl_keyfile
        Key of the certificate.
    http
        The HTTP parser of uvicorn.
    threshold
        The expected precision below which there is no match, where the model was calibrated.
    decoders
        Number of processes that decode images.
    device
        Where uploaded images are encoded: auto (a GPU if there is one), cpu, cuda, cuda:1 or mps.
    open_
        Open the page in the browser.
    """
    try:
        from proxyhash.serve.workers.process import start_fork_server

        start_fork_server()
        from proxyhash.serve.security import read_token
        from proxyhash.serve.server import ServerConfig
        from proxyhash.serve.server import serve as serve_index
        from proxyhash.serve.settings import Limits, Settings
    except ModuleNotFoundError as error:
        raise InputError(f"The service needs {error.name}: pip install 'proxyhash[serve]'.") from None
    _check_numbers(port, workers, decoders, threshold)
    if device != "auto":
        find_device(device)  # one that is not there is an error before anything is announced
    hosts, origins = frozenset(name.lower() for name in allow_host), frozenset(map(check_origin, allow_origin))
    settings = Settings(read_token(token_file), hosts, origins, threshold, Limits(decoders=decoders), device)
    config = ServerConfig(
        host=host,
        port=port,
        workers=workers,
        http=http,
        trusted_proxies=trust_proxy,
        root_path=check_root_path(root_path),
        ssl_certfile=ssl_certfile,
        ssl_keyfile=ssl_keyfile,
        log_requests=not is_quiet(),
    )
    _check_tls(ssl_certfile, ssl_keyfile)
    writing = "with a token, clients can write" if settings.token else "read-only"

    def on_listening(url: str) -> None:
        if not config.is_local:
            _warn_exposed(host, has_tls=ssl_certfile is not None, has_proxy=bool(trust_proxy))
        print_line(f"Serving {index_} at {url} ({writing}).")
        if open_:
            webbrowser.open(url)

    serve_index(index_, settings, config, on_listening)


def _check_numbers(port: int, workers: int, decoders: int, threshold: float) -> None:
    if not 0 <= port < 65_536:
        raise InputError(f"The port must be from 0 to 65535, not {port}.")
    for name, number in (("worker", workers), ("decoder", decoders)):
        if number < 1:
            raise InputError(f"There must be at least 1 {name}, not {number}.")
    if not 0 <= threshold <= 1:
        raise InputError(f"The threshold must be from 0 to 1, not {threshold:g}.")


def _check_tls(certificate: Path | None, key: Path | None) -> None:
    if key is not None and certificate is None:
        raise InputError("--ssl-keyfile needs --ssl-certfile.")
    for path in (certificate, key):
        if path is not None and not path.is_file():
            raise InputError(f"There is no file {path}.")


def check_origin(origin: str) -> str:
    """Return an origin, or raise InputError if it is not one: a browser sends scheme, host and port only."""
    scheme, separator, host = origin.partition("://")
    if scheme not in ("http", "https") or not separator or not host or "/" in host:
        raise InputError(f"An origin is a scheme and a host, such as https://example.org, not {origin}.")
    return origin.lower()


def check_root_path(path: str) -> str:
    """Return a path without a slash at its end, or raise InputError if it does not begin with one."""
    if path and not path.startswith("/"):
        raise InputError(f"The root path begins with a slash, such as /photos, not {path}.")
    return path.rstrip("/")


def _warn_exposed(host: str, *, has_tls: bool, has_proxy: bool) -> None:
    advice = "" if has_proxy else " Put a proxy in front of it, such as nginx, that limits what a client can cost."
    advice += "" if has_tls or has_proxy else " Traffic is not encrypted: use --ssl-certfile, or TLS in the proxy."
    warnings.warn(f"Other machines can connect to {host}, and anyone who can may search.{advice}", ProxyhashWarning, 2)
