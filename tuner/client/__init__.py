"""A Python client for operators of a tuner: `Client` blocks, `AsyncClient` is for asyncio."""

from tuner.client.asynchronous import AsyncClient, AsyncStudy
from tuner.client.blocking import Client, RemoteStudy
from tuner.client.history import History
from tuner.client.tokens import read_token
from tuner.core import Phase, Safety, Terms, TuningError
from tuner.tls import ClientTls
from tuner.wire import StudyDraft

__all__ = [
    "AsyncClient",
    "AsyncStudy",
    "Client",
    "ClientTls",
    "History",
    "Phase",
    "RemoteStudy",
    "Safety",
    "StudyDraft",
    "Terms",
    "TuningError",
    "read_token",
]
