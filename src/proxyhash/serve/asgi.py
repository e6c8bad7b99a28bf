"""The application from environment variables, for ASGI servers that import it.

PROXYHASH_INDEX=photos.index uvicorn --factory proxyhash.serve.asgi:app
PROXYHASH_INDEX=photos.index hypercorn 'proxyhash.serve.asgi:app()'
"""

import dataclasses
import multiprocessing
import os
import signal
import threading
from multiprocessing import connection
from typing import Any

import msgspec
from fastapi import FastAPI

from proxyhash.serve.app import create_app
from proxyhash.serve.security import TOKEN_VARIABLE, read_token
from proxyhash.serve.settings import Limits, Settings
from proxyhash.utils.errors import InputError

INDEX_VARIABLE = "PROXYHASH_INDEX"
SETTINGS_VARIABLE = "PROXYHASH_SETTINGS"


def app() -> FastAPI:
    """Return the application of the index in PROXYHASH_INDEX.

    PROXYHASH_TOKEN allows writing. PROXYHASH_SETTINGS is JSON with other fields of `Settings`, such as
    {"allowed_hosts": ["photos.example.org"], "limits": {"decoders": 4}}.
    """
    location = os.environ.get(INDEX_VARIABLE)
    if not location:
        raise InputError(f"Set {INDEX_VARIABLE} to the folder of an index.")
    threading.Thread(target=_stop_with_parent, name="parent", daemon=True).start()
    return create_app(location, settings_from_environment())


def _stop_with_parent() -> None:
    """Stop this process when the server that started it is killed, so that no worker stays behind."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)


def settings_from_environment() -> Settings:
    """Return the settings in the environment variables; an unknown field is an error."""
    text = os.environ.get(SETTINGS_VARIABLE, "{}")
    try:
        fields = msgspec.json.decode(text, type=dict[str, Any])
        limits = fields.pop("limits", {})
        check_names(fields, Settings, SETTINGS_VARIABLE)
        check_names(limits, Limits, f"{SETTINGS_VARIABLE}, limits")
        settings = msgspec.convert({"token": read_token(None), **fields, "limits": limits}, Settings)
    except msgspec.MsgspecError as error:
        raise InputError(f"{SETTINGS_VARIABLE} is not valid: {error}.") from None
    return settings


def settings_to_environment(location: str, settings: Settings) -> dict[str, str]:
    """Return the environment variables from which `app` makes the same application."""
    fields = msgspec.to_builtins(settings)
    token = fields.pop("token")
    variables = {INDEX_VARIABLE: location, SETTINGS_VARIABLE: msgspec.json.encode(fields).decode()}
    return variables if token is None else {**variables, TOKEN_VARIABLE: token}


def check_names(fields: Any, config: type[Settings | Limits], name: str) -> None:
    """Raise InputError if a field is unknown."""
    known = {field.name for field in dataclasses.fields(config)}
    unknown = sorted(set(fields) - known) if isinstance(fields, dict) else ["(not an object)"]
    if unknown:
        raise InputError(f"{name} has no field {unknown[0]}; known are {', '.join(sorted(known))}.")
