"""Log lines of the service as JSON, by Python's `logging`."""

import logging
from datetime import UTC, datetime

import msgspec

SERVICE_LOGGER = "proxyhash.serve"
ACCESS_LOGGER = "proxyhash.serve.access"


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON, with the fields that were passed as `extra={"fields": {...}}`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


def log_config(*, log_requests: bool) -> dict[str, object]:
    """Return the configuration for `logging.config.dictConfig`, and so for uvicorn: JSON lines on standard error."""
    level = "INFO" if log_requests else "ERROR"
    handler = {"class": "logging.StreamHandler", "formatter": "json", "stream": "ext://sys.stderr"}
    logger = {"handlers": ["stderr"], "propagate": False}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"json": {"()": JsonFormatter}},
        "handlers": {"stderr": handler},
        "loggers": {
            SERVICE_LOGGER: {**logger, "level": level},
            "uvicorn": {**logger, "level": "WARNING"},
            # Every request that is not HTTP is a warning; a scanner would fill the disk.
            "uvicorn.error": {**logger, "level": "ERROR"},
        },
    }
