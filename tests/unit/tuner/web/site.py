"""A tuner with its pages in this process, and browsers that visit it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from html import unescape

import httpx2
from fastapi import FastAPI
from starlette.testclient import TestClient

from tuner.config import SeriesTable, TunerConfig
from tuner.service.energy_price import EnergyPrice
from tuner.service.fleet import FleetOverview
from tuner.service.http.api import create_app
from tuner.service.operations import Operations
from tuner.service.summaries import Summaries
from tuner.web.app import create_pages
from tuner.wire import TokenDraft

TOKEN = "the admin's own token"
BROWSER = {"Accept": "text/html"}


class Site:
    """A tuner with its pages, and browsers that visit it."""

    def __init__(self, verbs: Operations) -> None:
        series = {"price_per_kwh": 0.25, "co2e_g_per_kwh": 400.0}
        config = TunerConfig(**{n: SeriesTable(constant=v) for n, v in series.items()})  # type: ignore[arg-type]
        self.verbs = verbs = replace(verbs, price=EnergyPrice.of(config))
        self.fleet = FleetOverview(verbs, Summaries(verbs))
        self.app = create_app(
            verbs,
            TOKEN,
            frozenset({"testserver"}),
            "0",
            fleet=self.fleet,
            pages=lambda sessions: self.keep(create_pages(self.fleet, sessions, "0", secure=False)),
        )

    def keep(self, pages: object) -> FastAPI:
        assert isinstance(pages, FastAPI)
        self.pages = pages
        return pages

    def browser(self) -> TestClient:
        return TestClient(self.app, headers=BROWSER)

    def signed_in(self, role: str = "admin", name: str = "") -> TestClient:
        browser = self.browser()
        token = TOKEN
        if role != "admin" or name:
            draft = TokenDraft.model_validate({"name": name or role, "role": role})
            token = self.verbs.access.create(draft).token
        answer = browser.post("/login", data={"token": token, "next": "/"})
        assert answer.status_code == 200
        return browser

    def routes(self) -> Iterator[tuple[str, str]]:
        with self.browser():
            pass
        paths = self.pages.openapi()["paths"]
        assert len(paths) > 15
        for path, methods in paths.items():
            yield from ((method.upper(), path) for method in methods)


def form_key(page: httpx2.Response) -> str:
    match = re.search(r'name="form_key" value="([0-9a-f]+)"', page.text)
    assert match is not None, page.text
    return match[1]


def send(browser: TestClient, path: str, seen_at: str = "/", **fields: str) -> httpx2.Response:
    """Send a form as the current page would."""
    key = form_key(browser.get(seen_at))
    return browser.post(path, data={"form_key": key, **fields})


def text_of(answer: httpx2.Response) -> str:
    return unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", answer.text)))
