"""A page: one template, and one function beside those of the existing pages."""

from __future__ import annotations

from pathlib import Path

from tests.extend.checkout import Checkout

TEMPLATE = """{% extends "base.html" %}
{% block title %}Phases{% endblock %}
{% block main %}
<h1>Phases</h1>
<dl>{% for phase, count in phases.items() %}<dt>{{ phase }}</dt><dd>{{ count }}</dd>{% endfor %}</dl>
{% endblock %}
"""
FUNCTION = '''@router.get("/phases")
    def phases(request: Request) -> Response:
        """Count the studies in each phase."""
        found: dict[str, int] = {}
        for study in fleet.operations.studies():
            found[str(study.phase)] = found.get(str(study.phase), 0) + 1
        return pages.page(request, "phases", phases=found)

    '''
VISIT = """
from starlette.testclient import TestClient

from tests.unit.tuner.cli.worlds import created, operations
from tuner.service.http.api import create_app
from tuner.service.fleet import FleetOverview
from tuner.service.summaries import Summaries
from tuner.web.app import create_pages

verbs = operations()
created(verbs)
fleet = FleetOverview(verbs, Summaries(verbs))
made = lambda sessions: create_pages(fleet, sessions, "0", secure=False)
app = create_app(verbs, "secret", frozenset({"testserver"}), "0", fleet=fleet, pages=made)
browser = TestClient(app, headers={"Accept": "text/html"})
print(browser.get("/phases", follow_redirects=False).headers["location"])
browser.post("/login", data={"token": "secret"})
print(browser.get("/phases").text)
"""


def test_a_page_is_one_template_and_one_function(tmp_path: Path) -> None:
    copy = Checkout(tmp_path / "copy", "tuner")
    copy.add("tuner/web/templates/phases.html", TEMPLATE)
    copy.insert("tuner/web/access_pages.py", '@router.get("/about")', FUNCTION)
    assert copy.added == ["tuner/web/templates/phases.html"]
    assert copy.changed == ["tuner/web/access_pages.py"]
    sent_to, _, page = copy.python(VISIT).partition("\n")
    assert sent_to.startswith("/login"), "who is not signed in does not see it"
    assert "<h1>Phases</h1>" in page and "<dt>baseline</dt><dd>1</dd>" in page
