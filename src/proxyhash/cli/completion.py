"""`proxyhash completion`: the shell completes commands and options."""

from typing import Annotated, Literal

from proxyhash.cli.output import Flag, narrator


def completion(shell: Literal["bash", "zsh", "fish"] | None = None, /, *, install: Annotated[bool, Flag] = False) -> None:
    """Print the script that lets a shell complete commands and options, or install it for you.

      proxyhash completion --install
      eval "$(proxyhash completion bash)"

    Parameters
    ----------
    shell
        bash, zsh or fish; by default the one that you use.
    install
        Write the script to where the shell looks for it, and a line that loads it to its startup file.
    """
    from proxyhash.cli.app import app
    from proxyhash.utils.errors import InputError

    try:
        if install:
            narrator().print(f"Completion is in {app.install_completion(shell=shell)}; open a new shell.", markup=False)
        else:
            print(app.generate_completion(shell=shell))
    except (RuntimeError, ValueError, OSError) as error:  # no shell that is known, or a folder that is closed to us
        reason = " ".join(str(error).split()).rstrip(".")
        raise InputError(f"Completion cannot be set up ({reason}); name the shell: proxyhash completion bash.") from error
