"""The `proxyhash` command: its subcommands, error messages and exit codes."""

import os
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, CycloptsError, Parameter
from rich.console import Console

from proxyhash.cli.output import SafeConsole, is_quiet, quiet_mode, status_console
from proxyhash.cli.parameters import Flag
from proxyhash.utils.atomic_io import is_disk_full
from proxyhash.utils.errors import InputError, ProxyhashWarning

_HELP = """Deep hashing in PyTorch: train binary codes for image retrieval, evaluate them exactly, search them by Hamming
distance.

Start here:

  proxyhash demo                              try it on handwritten digits
  proxyhash quickstart FOLDER                 your own images to a model, an index and a report
  proxyhash proxies --classes 100 --bits 32   design proxies and print their quality
  proxyhash evaluate codes --help             evaluate codes from files
  proxyhash data check FOLDER                 check your own images before training
  proxyhash train FOLDER --bits 32 -o MODEL   train a model on labeled images
  proxyhash fit VECTORS.npy --bits 256 -o MODEL   fit an encoder of vectors
  proxyhash index add FOLDER --model MODEL --index INDEX   add images to an index
  proxyhash search INDEX query.jpg -k 20      find similar images
  proxyhash serve INDEX                       search in a browser or by HTTP
  proxyhash cache                             list and delete cached features and activations
  proxyhash doctor                            installed packages, and how to install the others
  proxyhash proxies --help                    all options of a subcommand
"""


def _version() -> str:
    from proxyhash import __version__

    return __version__


app = App(
    name="proxyhash",
    help=_HELP,
    version=_version,
    help_format="plaintext",
    suppress_keyboard_interrupt=False,  # `main` prints a message
)
app.meta.suppress_keyboard_interrupt = False
# Modules are named and not imported: a command imports its own one only.
for _command in (
    "proxies:proxies",
    "proxies:inspect",
    "evaluate:evaluate",
    "data:datasets",
    "data:data",
    "train:train",
    "fit:fit",
    "encode:encode",
    "encode:export",
    "methods:methods",
    "benchmark:benchmark",
    "benchmark:tune",
    "report:report",
    "records:records",
    "reproduce:reproduce",
    "index:index",
    "search:search",
    "serve:serve",
    "demo:demo",
    "quickstart:quickstart",
    "cache:cache",
    "doctor:doctor",
):
    app.command(f"proxyhash.cli.{_command}")


@app.command
def completion(shell: Literal["bash", "zsh", "fish"] | None = None, /, *, install: Annotated[bool, Flag] = False) -> None:
    """Print or install the script that completes commands and options in a shell.

      proxyhash completion --install
      eval "$(proxyhash completion bash)"

    Parameters
    ----------
    shell
        bash, zsh or fish; by default the current shell.
    install
        Write the script to the folder of the shell, and a line that loads it to the startup file of the shell.
    """
    try:
        if install:
            path = app.install_completion(shell=shell)
            status_console().print(f"Completion is in {path}; open a new shell.", markup=False)
        else:
            print(app.generate_completion(shell=shell))
    except (RuntimeError, ValueError, OSError) as error:  # an unknown shell, or a folder that cannot be written
        reason = " ".join(str(error).split()).rstrip(".")
        raise InputError(f"Completion cannot be set up ({reason}); name the shell: proxyhash completion bash.") from error


@app.meta.default
def launch(
    *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    quiet: Annotated[bool, Parameter(name=["--quiet", "-q"], negative=(), show_default=False)] = False,
    plugin: Annotated[list[Path] | None, Parameter(negative=(), show_default=False)] = None,
) -> None:
    """Run a command with the options that all commands share.

    Parameters
    ----------
    tokens
        The command and its own options.
    quiet
        Print only results and errors: no progress bars, no notes, no status messages.
    plugin
        A Python file that registers methods; give it several times for several files.
    """
    if plugin:
        from proxyhash.methods import use_plugins

        use_plugins(plugin)
    with quiet_mode(quiet):
        app(tokens, exit_on_error=False, print_error=False, result_action="return_value")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; a user error prints one line on standard error and exits with code 2."""
    errors = SafeConsole(stderr=True, soft_wrap=True, highlight=False)
    tokens = list(sys.argv[1:] if arguments is None else arguments)
    if not tokens or tokens[0].startswith("-"):
        app.resolved_commands()  # help prints the first sentence of every command
    if "--plot" in tokens:
        from proxyhash.cli.proxies import with_default_plot

        tokens = with_default_plot(tokens)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _print_warnings(errors)
            warnings.simplefilter("always", ProxyhashWarning)
            app.meta(tokens, exit_on_error=False, print_error=False, result_action="return_value")
    except (InputError, CycloptsError) as error:
        errors.print(f"proxyhash: error: {' '.join(str(error).split())}", markup=False)
        sys.exit(2)
    except BrokenPipeError:  # the reader of the output has stopped
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except Exception as error:
        message = _system_error_message(error)
        if message is None:
            raise
        errors.print(f"proxyhash: error: {message}", markup=False)
        sys.exit(2)
    except KeyboardInterrupt as stop:
        errors.print(f"proxyhash: stopped{f'; {stop}' if str(stop) else '.'}", markup=False)
        sys.exit(130)


def _system_error_message(error: Exception) -> str | None:
    """Return a sentence about a full disk or a file that cannot be used; None for any other error."""
    if is_disk_full(error, Path.cwd()):
        return "No space is left on the disk: free some and run it again; what was finished is kept."
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"Cannot use {error.filename}: {error.strerror}."
    return None


def _print_warnings(errors: Console) -> Callable[..., None]:
    def show(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
        label = "note" if issubclass(category, ProxyhashWarning) else category.__name__
        if not is_quiet():
            errors.print(f"proxyhash: {label}: {message}", markup=False)

    return show
