"""A query with an unknown parameter, or with one twice, is refused by the parameter's name."""

from __future__ import annotations

import pytest

from tests.stores import memory_store
from tests.unit.tuner.cli import worlds
from tests.unit.tuner.web.site import TOKEN, Site


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("/v1/events?lsat=1", "'lsat' is not known here"),
        ("/v1/events?last=1&last=2", "'last' is given twice"),
        ("/v1/studies?phase=holding", "'phase' is not known here"),
        ("/v1/history?device=a&device=b", "'device' is given twice"),
    ],
)
def test_each_query_parameter_is_applied_or_refused_by_name(path: str, named: str) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with Site(worlds.operations(memory_store())).browser() as browser:
        answer = browser.get(path, headers=headers)
        assert answer.status_code == 422 and named in answer.json()["message"]
        assert browser.get("/v1/events?last=1&device=a", headers=headers).status_code == 200


def test_a_page_with_a_query_out_of_bounds_is_a_page() -> None:
    with Site(worlds.operations(memory_store())).signed_in() as browser:
        answer = browser.get("/studies?page=x")
        assert answer.status_code == 422 and answer.text.startswith("<!doctype html>")
