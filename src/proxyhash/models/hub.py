"""Models of the Hugging Face Hub: fetched at a pinned commit, and pushed in one commit."""

import re
from pathlib import Path

from proxyhash.models.storage import (
    CALIBRATION,
    CARD,
    CONFIG,
    FILES,
    METRICS,
    PROBE,
    PROXIES,
    WEIGHTS,
    check_files,
    read_config,
)
from proxyhash.utils import legacy_names
from proxyhash.utils.errors import InputError

# Only tensors, JSON and the card are fetched: no pickles, and not the ONNX file.
FETCHED = (CONFIG, WEIGHTS, PROXIES, PROBE, CALIBRATION, METRICS, legacy_names.METRICS_FILE, CARD)

_REPOSITORY = re.compile(r"(?P<repository>[\w.-]+/[\w.-]+?)(@(?P<revision>.*))?")
_NAME = re.compile(r"(?!.*(--|\.\.))\w([\w.-]{0,94}\w)?")  # of an owner or a repository, as the Hub allows them
_COMMIT = re.compile(r"[0-9a-f]{40}")


def local_folder(model: str | Path, revision: str | None = None) -> Path:
    """Return the folder of a model: itself, or the copy of a repository `OWNER/NAME@COMMIT` of the Hub.

    A branch or a tag can be moved to other weights by whoever owns the repository, so only a commit is accepted.
    """
    path = Path(model)
    if "\0" in str(model):
        raise InputError("A model has no zero byte in its name.")
    named = _REPOSITORY.fullmatch(str(model).replace("\\", "/"))
    if path.exists() or named is None or named["repository"].startswith("."):
        if revision is not None:
            raise InputError(f"{model} is not a repository of the Hugging Face Hub, so it has no revision {revision}.")
        return path
    repository, wanted = named["repository"], revision or named["revision"]
    if not all(_NAME.fullmatch(name) for name in repository.split("/")):
        raise InputError(f"There is no folder {model}, and {repository} is no name of a repository of the Hugging Face Hub.")
    if wanted is None or not _COMMIT.fullmatch(wanted):
        why = (
            f"{wanted} can be moved to other weights"
            if wanted
            else "as a repository of the Hugging Face Hub it names no commit"
        )
        raise InputError(
            f"There is no folder {model}, and {why}: pin the 40 digits of a commit, {repository}@COMMIT, "
            f"as https://huggingface.co/{repository}/commits lists them."
        )
    return _copy(repository, wanted)


def push_folder(
    folder: Path,
    repository: str,
    *,
    private: bool | None = None,
    token: str | None = None,
    message: str | None = None,
) -> str:
    """Upload the files of a model to a repository in one commit, and return the 40 digits of the commit.

    The repository is created if it does not exist. Files of an earlier model that this one has not are deleted by the same
    commit; other files of the repository stay.
    """
    named = _REPOSITORY.fullmatch(repository)
    if named is None or named["revision"] is not None or not all(_NAME.fullmatch(name) for name in repository.split("/")):
        raise InputError(f"{repository} is no name of a repository of the Hugging Face Hub, such as OWNER/NAME.")
    check_files(folder, read_config(folder).get("sha256"))
    try:
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
        from huggingface_hub.errors import HfHubHTTPError
    except ImportError:
        raise InputError('The Hugging Face Hub needs huggingface_hub; run pip install "proxyhash[hub]".') from None
    ours = sorted(name for name in FILES if (folder / name).is_file())
    operations: list[CommitOperationAdd | CommitOperationDelete]
    operations = [CommitOperationAdd(name, str(folder / name)) for name in ours]
    api = HfApi(token=token)
    try:
        api.create_repo(repository, private=private, exist_ok=True)
        stale = sorted((FILES & set(api.list_repo_files(repository))) - set(ours))
        operations += [CommitOperationDelete(name) for name in stale]
        commit: str = api.create_commit(repository, operations, commit_message=message or "Push a model of proxyhash").oid
    except HfHubHTTPError as error:
        answer = getattr(error.response, "status_code", "an error")
        raise InputError(
            f"{repository} cannot be pushed to: the Hugging Face Hub answers {answer}; "
            "log in by hf auth login, or pass a token that may write to it."
        ) from error
    except Exception as error:  # without a network, the errors of the HTTP client, which share no base with OSError
        reason = " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
        raise InputError(f"{repository} cannot be pushed to: {reason}.") from error
    return commit


def _copy(repository: str, commit: str) -> Path:
    """Return the local copy of a commit, fetched if it is not there: a commit never changes, so a copy is never stale."""
    try:
        from huggingface_hub import constants, snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, RevisionNotFoundError
    except ImportError:
        raise InputError('Models of the Hugging Face Hub need huggingface_hub; run pip install "proxyhash[hub]".') from None
    where = f"{repository}@{commit}"
    try:
        fetched = snapshot_download(repository, revision=commit, allow_patterns=list(FETCHED))
    except RevisionNotFoundError:
        raise InputError(f"{repository} has no commit {commit} on the Hugging Face Hub.") from None
    except LocalEntryNotFoundError as error:  # no network, and no copy
        raise InputError(
            f"{where} is not in {constants.HF_HUB_CACHE} and cannot be fetched now; try again with a network."
        ) from error
    except HfHubHTTPError as error:
        answer = getattr(error.response, "status_code", "an error")
        raise InputError(
            f"{where} cannot be fetched: the Hugging Face Hub answers {answer}; is it spelt right, and public?"
        ) from error
    except OSError as error:
        raise InputError(f"{where} cannot be fetched: {error.strerror or ' '.join(str(error).split())}.") from error
    return Path(fetched)
