"""The `proxyhash` command itself: its subcommands, and how errors reach a person."""

import os
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from cyclopts import App, CycloptsError, Parameter
from rich.console import Console

from proxyhash import __version__
from proxyhash.cli import (
    benchmark,
    completion,
    data,
    demo,
    doctor,
    encode,
    evaluate,
    index,
    methods,
    proxies,
    quickstart,
    report,
    reproduce,
    search,
    serve,
    train,
)
from proxyhash.cli.output import is_quiet, keeping_quiet
from proxyhash.utils.atomic_io import is_disk_full
from proxyhash.utils.errors import InputError, ProxyhashWarning

_HELP = """Turn labeled images into short binary codes that retrieve by meaning, and search them.

Start here:

  proxyhash demo                              try it on handwritten digits
  proxyhash quickstart FOLDER                 your own images to a model, an index and a report
  proxyhash proxies --classes 100 --bits 32   design proxies and judge them
  proxyhash evaluate codes --help             measure anyone's codes
  proxyhash data check FOLDER                 look at your own images before training
  proxyhash train FOLDER --bits 32 -o MODEL   turn labeled images into a hasher
  proxyhash index add FOLDER --model MODEL --index INDEX   keep the codes of images
  proxyhash search INDEX query.jpg -k 20      find images like one
  proxyhash serve INDEX                       search in a browser, or by HTTP
  proxyhash doctor                            what is installed, and what to type for the rest
  proxyhash proxies --help                    all that a subcommand can do
"""

app = App(
    name="proxyhash",
    help=_HELP,
    version=__version__,
    help_format="plaintext",
    suppress_keyboard_interrupt=False,  # `main` has something to say
)
app.meta.suppress_keyboard_interrupt = False
app.command(proxies.proxies, name="proxies")
app.command(proxies.inspect, name="inspect")
app.command(evaluate.evaluate)
app.command(data.datasets, name="datasets")
app.command(data.data)
app.command(train.train, name="train")
app.command(encode.encode, name="encode")
app.command(train.export, name="export")
app.command(methods.methods, name="methods")
app.command(benchmark.benchmark, name="benchmark")
app.command(benchmark.tune, name="tune")
app.command(report.report, name="report")
app.command(reproduce.reproduce, name="reproduce")
app.command(index.index)
app.command(search.search, name="search")
app.command(serve.serve, name="serve")
app.command(demo.demo, name="demo")
app.command(quickstart.quickstart, name="quickstart")
app.command(doctor.doctor, name="doctor")
app.command(completion.completion, name="completion")


@app.meta.default
def launch(
    *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    quiet: Annotated[bool, Parameter(name=["--quiet", "-q"], negative=(), show_default=False)] = False,
    plugin: Annotated[list[Path] | None, Parameter(negative=(), show_default=False)] = None,
) -> None:
    """Run a command; what all commands share is said here.

    Parameters
    ----------
    tokens
        The command and its own options.
    quiet
        Print answers and errors only: no bars, no notes, no lines on the way.
    plugin
        A Python file that registers methods; give it several times for several files.
    """
    if plugin:
        from proxyhash.methods import use_plugins

        use_plugins(plugin)
    with keeping_quiet(quiet):
        app(tokens, exit_on_error=False, print_error=False, result_action="return_value")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 for success, 2 with one line on standard error for anything a person got wrong."""
    errors = Console(stderr=True, soft_wrap=True, highlight=False)
    tokens = proxies.with_default_plot(list(sys.argv[1:] if arguments is None else arguments))
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _one_line_notes(errors)
            warnings.simplefilter("always", ProxyhashWarning)
            app.meta(tokens, exit_on_error=False, print_error=False, result_action="return_value")
    except (InputError, CycloptsError) as error:
        errors.print(f"proxyhash: error: {' '.join(str(error).split())}", markup=False)
        sys.exit(2)
    except BrokenPipeError:  # whoever read the output has seen enough
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except Exception as error:
        said = _about_the_machine(error)
        if said is None:
            raise
        errors.print(f"proxyhash: error: {said}", markup=False)
        sys.exit(2)
    except KeyboardInterrupt as stop:
        errors.print(f"proxyhash: stopped{f'; {stop}' if str(stop) else '.'}", markup=False)
        sys.exit(130)


def _about_the_machine(error: Exception) -> str | None:
    """Return a sentence about what no program can foresee: a full disk, a closed file; None for our own bugs."""
    if is_disk_full(error, Path.cwd()):
        return "No space is left on the disk: free some and run it again; what was finished is kept."
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"Cannot use {error.filename}: {error.strerror}."
    return None


def _one_line_notes(errors: Console) -> Callable[..., None]:
    def show(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
        label = "note" if issubclass(category, ProxyhashWarning) else category.__name__
        if not is_quiet():
            errors.print(f"proxyhash: {label}: {message}", markup=False)

    return show
