"""State of the service: information, health, readiness, metrics."""

import asyncio

from fastapi import FastAPI, Response
from prometheus_client import CONTENT_TYPE_LATEST

from proxyhash.serve.documentation import BUSY
from proxyhash.serve.schemas import InfoResponse, StatusResponse
from proxyhash.serve.service import Service


def add_status_routes(app: FastAPI, service: Service) -> None:
    """Add the routes for clients, orchestrators and monitoring."""

    @app.get("/api/v1/info", tags=["status"])
    async def get_info() -> InfoResponse:
        """Describe the index and what the service can do with it."""
        return await asyncio.to_thread(service.info)

    @app.get("/health", tags=["status"])
    async def get_health() -> StatusResponse:
        """Say that the process is alive."""
        return StatusResponse(status="alive")

    @app.get("/ready", tags=["status"], responses=BUSY)
    async def get_readiness() -> StatusResponse:
        """Say whether searches are answered: the search process is asked."""
        await service.check_ready()
        return StatusResponse(status="ready")

    @app.get("/metrics", tags=["status"], response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def get_metrics() -> Response:
        """Return the metrics for Prometheus."""
        return Response(service.metrics_text(), headers={"Content-Type": CONTENT_TYPE_LATEST})
