"""The pages over HTTP: permissions, forms, and no name is read as markup."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace

import pytest

from policies.polythrottle.policy import Polythrottle
from tests.builders import applied, device, setting
from tests.unit.tuner.cli.worlds import created, operations, proposed, slope, steep, tune
from tests.unit.tuner.web.site import TOKEN, Site, form_key, send, text_of
from tuner.core import AccessRole, Level, Metric, Phase, Study, Verdict, digest_of, request_fields
from tuner.web.render import HEADERS, plotly_file
from tuner.wire import Change, Enrolment, Poll, TokenDraft

HOSTILE = "<script>alert(1)</script>\"'&{{7*7919}}"
OPEN = {"/login", "/assets/{name}"}
FOR_ADMIN = {"/access", "/access/revoke"}


@pytest.fixture
def site() -> Site:
    return Site(operations())


@pytest.fixture
def study(site: Site) -> str:
    return created(site.verbs)


def stored(site: Site, study: str) -> Study:
    return site.verbs.loop.store.studies.get(study)


def test_only_the_page_to_sign_in_at_and_its_assets_are_open(site: Site) -> None:
    browser = site.browser()
    for method, path in site.routes():
        address = path.format(study="s", number=1, name="app.css", device="sim")
        answer = browser.request(method, address, follow_redirects=False)
        if path in OPEN:
            assert answer.status_code in (200, 401), (method, path)
        else:
            assert answer.status_code == 303, (method, path)
            assert answer.headers["location"].startswith("/login?next=")


def test_a_browser_without_a_session_is_always_redirected_to_sign_in(site: Site) -> None:
    browser = site.browser()
    for _ in range(60):
        assert browser.get("/history", follow_redirects=False).status_code == 303
    assert browser.post("/login", data={"token": TOKEN}).status_code == 200


def test_the_log_comes_in_pages_however_long_its_sentences_are(site: Site) -> None:
    for n in range(250):
        site.verbs.loop.changes.note("unable", f"event {n} " + "x" * 1_900, device="sim")
    browser = site.signed_in()
    pages = [browser.get(f"/events?page={page}&device=sim") for page in (1, 2, 3)]
    assert max(len(page.content) for page in pages) < 300_000
    numbers = [re.findall(r"event (\d+) ", page.text) for page in pages]
    assert [int(n) for page in numbers for n in page] == list(range(249, -1, -1))
    assert "page=2" in pages[0].text and "page=4" not in pages[2].text


def test_a_form_with_a_field_that_is_too_long_is_refused_in_words(site: Site, study: str) -> None:
    browser = site.signed_in()
    path = f"/studies/{study}/constraints"
    for constraint in ("x" * 2_000, "latency\x1b[2J <= 1"):
        answer = send(browser, path, path, do="set", why="so", constraints=constraint)
        assert answer.status_code == 422
        assert "constraints: " in text_of(answer)


def test_a_role_opens_its_pages_and_actions_and_no_others(site: Site, study: str) -> None:
    tune(site.verbs, slope)
    refused = {}
    for role in ("viewer", "operator", "admin"):
        browser = site.signed_in(role)
        refused[role] = {
            (method, path)
            for method, path in site.routes()
            if path not in (*OPEN, "/logout")
            if browser.request(
                method,
                path.format(study=study, number=1, name="app.css", device="sim"),
                follow_redirects=False,
            ).status_code
            == 403
        }
    changes = {(m, p) for m, p in site.routes() if m == "POST" and p not in ("/login", "/logout")}
    for_admin = {(m, p) for m, p in site.routes() if p in FOR_ADMIN}
    assert refused["viewer"] == changes | for_admin
    # Without its page's key every form is refused, also from the admin.
    assert refused["operator"] == changes | for_admin
    assert refused["admin"] == changes


@pytest.mark.parametrize("kind", ["agent", "enrol", "used"])
def test_machine_tokens_open_no_page(site: Site, kind: str, study: str) -> None:
    given = site.verbs.access.create(TokenDraft(role=AccessRole.ENROL)).token
    if kind != "enrol":
        digest = digest_of("the agent's own token")
        site.verbs.access.enrol(
            site.verbs.access.caller(given), Enrolment(agent="host", digest=digest)
        )
    token = "the agent's own token" if kind == "agent" else given
    browser = site.browser()
    for method, path in site.routes():
        if path not in (*OPEN, "/logout"):
            address = path.format(study=study, number=1, name="app.css", device="sim")
            answer = browser.request(method, address, headers={"Authorization": f"Bearer {token}"})
            assert answer.status_code == 403, (method, path)
            assert study not in answer.text


def test_sign_in_returns_to_the_requested_page_and_nowhere_else(site: Site) -> None:
    browser = site.browser()
    redirect = browser.get("/history", follow_redirects=False)
    assert redirect.headers["location"] == "/login?next=%2Fhistory"
    for address, got in (
        ("/history", "/history"),
        ("//evil.example", "/"),
        ("/\\evil", "/"),
        ("", "/"),
    ):
        answer = browser.post(
            "/login", data={"token": TOKEN, "next": address}, follow_redirects=False
        )
        assert answer.headers["location"] == got


def test_a_session_is_a_cookie_that_scripts_cannot_read_and_has_no_token_in_it(site: Site) -> None:
    answer = site.browser().post("/login", data={"token": TOKEN}, follow_redirects=False)
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie and "samesite=lax" in cookie.lower()
    assert TOKEN not in cookie


def test_a_wrong_token_and_a_machines_open_nothing_and_many_are_slowed_down(site: Site) -> None:
    browser = site.browser()
    assert browser.post("/login", data={"token": "wrong"}).status_code == 401
    enrol = site.verbs.access.create(TokenDraft(role=AccessRole.ENROL)).token
    assert browser.post("/login", data={"token": enrol}).status_code == 401
    codes = {browser.post("/login", data={"token": "guess"}).status_code for _ in range(40)}
    assert codes == {401, 429}
    assert browser.post("/login", data={"token": TOKEN}).status_code == 200


def test_revoking_a_token_ends_its_sessions(site: Site) -> None:
    browser = site.signed_in("operator", "ann")
    assert "ann, operator" in text_of(browser.get("/"))
    site.verbs.access.revoke("ann")
    assert browser.get("/", follow_redirects=False).status_code == 303


def test_a_session_outlives_the_tuner_and_a_forged_one_is_none(site: Site) -> None:
    browser = site.signed_in("viewer")
    again = Site(site.verbs)
    good = browser.cookies["jouletune_session"]
    other = "0" if good[-1] != "0" else "1"
    forged = (
        good.replace("viewer", "admin", 1),
        f"{good[:-1]}{other}",
        ":99999999999:",
        "x",
        "",
        f"viewer:{'9' * 6000}:a:b",
    )
    for cookie in (good, *forged):
        headers = {"Cookie": f"jouletune_session={cookie}"}
        answer = again.browser().get("/", headers=headers, follow_redirects=False)
        assert answer.status_code == (200 if cookie == good else 303), cookie


@pytest.mark.promise(
    "another site's form, or a hostile name, reaches an operator's browser",
    "foreign forms do nothing, no name is markup, only our scripts run",
)
def test_another_sites_form_and_one_of_another_session_do_nothing(site: Site, study: str) -> None:
    ann, bob = site.signed_in("operator", "ann"), site.signed_in("operator", "bob")
    foreign = form_key(bob.get("/"))
    for key in ("", foreign):
        answer = ann.post(f"/studies/{study}/pause", data={"form_key": key})
        assert answer.status_code == 403
    own = {"form_key": form_key(ann.get("/"))}
    evil = ann.post(f"/studies/{study}/pause", data=own, headers={"Origin": "https://evil.example"})
    assert evil.status_code == 403
    assert stored(site, study).phase is Phase.BASELINE


def test_a_session_can_read_the_api_and_change_nothing_there(site: Site, study: str) -> None:
    browser = site.signed_in("operator")
    assert browser.get("/v1/fleet").json()["rows"][0]["device"] == "sim"
    assert browser.post(f"/v1/studies/{study}/pause", json={}).status_code == 403


def test_every_page_shows_a_study_in_each_of_its_phases(site: Site) -> None:
    browser = site.signed_in()
    assert "Every device is free" not in text_of(browser.get("/"))
    study = created(site.verbs)
    pages = ("/", "/studies", f"/studies/{study}", f"/studies/{study}/constraints", "/history",
             "/events", "/budgets", "/access", "/about", "/studies/new", "/compare")  # fmt: skip
    for reached in ("baseline", "holding", "paused"):
        if reached == "holding":
            tune(site.verbs, slope)
        if reached == "paused":
            send(browser, f"/studies/{study}/pause", f"/studies/{study}")
        assert str(stored(site, study).phase) == reached
        site.fleet.summaries.renew()
        for page in pages:
            answer = browser.get(page)
            assert answer.status_code == 200, (page, answer.text)
            assert "{{" not in answer.text and "None" not in text_of(answer), page
        assert reached in text_of(browser.get(f"/studies/{study}"))


def test_a_plan_by_load_is_shown_with_the_present_load_and_setting(site: Site) -> None:
    study = created(site.verbs, "by-load")
    tune(site.verbs, slope)
    browser = site.signed_in("viewer")
    assert "No device has reported its requests_in_system yet" in text_of(
        browser.get(f"/studies/{study}")
    )
    held = stored(site, study)
    assert held.plan is not None
    now = replace(applied("sim", Level.HOLD, held.plan.rows[0].setting), study=study)
    site.verbs.loop.order(
        "sim", Poll(agent="host/1", applied=now, context={"requests_in_system": 1.25})
    )
    page = text_of(browser.get(f"/studies/{study}"))
    assert "sim: requests_in_system 1.25, reported" in page
    assert "below 3 gpu.clock_mhz=600 sim from 3 on the baseline –" in page
    (view,) = browser.get("/v1/devices").json()
    assert view["context"] == {"requests_in_system": 1.25}


def test_the_fleet_page_shows_statuses_and_savings_as_the_api_does(site: Site, study: str) -> None:
    tune(site.verbs, slope)
    order = site.verbs.loop.order("sim", Poll(agent="host/1", applied=applied()))
    assert order.kind == "hold"
    browser = site.signed_in("viewer")
    assert browser.get("/v1/fleet").json()["pending"] == 1
    assert site.fleet.summaries.renew() == 1
    fleet = browser.get("/v1/fleet").json()
    (row,) = fleet["rows"]
    assert (row["study"], row["phase"], fleet["pending"]) == (study, "holding", 0)
    # Ordered, but not yet applied: it saves nothing now.
    assert row["saving"] is None
    assert not any("40.0" in text_of(browser.get(page)) for page in ("/", "/studies"))
    held = replace(applied("sim", Level.HOLD, setting(600)), study=study)
    site.verbs.loop.order("sim", Poll(agent="host/1", applied=held))
    (row,) = browser.get("/v1/fleet").json()["rows"]
    assert row["saving"]["mean"] == pytest.approx(0.4)
    assert all("40.0" in text_of(browser.get(page)) for page in ("/", "/studies"))
    site.verbs.stop_all(Change(why="heat"))
    (row,) = browser.get("/v1/fleet").json()["rows"]
    assert row["saving"] is None
    assert not any("40.0" in text_of(browser.get(page)) for page in ("/", "/studies"))
    assert "No device matches" in text_of(browser.get("/?find=elsewhere"))


def test_a_page_of_the_history_is_the_same_over_the_api(site: Site) -> None:
    created(site.verbs)
    tune(site.verbs, slope)
    browser = site.signed_in("viewer")
    numbers = [row["number"] for row in browser.get("/v1/history").json()]
    page = [row["number"] for row in browser.get("/v1/history?last=3&skip=1").json()]
    assert len(page) == 3
    assert page == numbers[::-1][1:4]
    assert '/v1/history?&amp;last=50&amp;skip=0"' in browser.get("/history").text


def test_constraints_are_changed_after_a_preview(site: Site, study: str) -> None:
    tune(site.verbs, slope)
    browser = site.signed_in("operator", "ann")
    at = f"/studies/{study}/constraints"
    tight = {"constraints": "latency_p99_ms <= 106", "why": "new SLO"}
    seen = send(browser, at, at, do="preview", **tight)
    assert "become infeasible" in text_of(seen) and "more trials expected" in text_of(seen)
    assert stored(site, study).phase is Phase.HOLDING
    send(browser, at, at, do="set", **tight)
    assert stored(site, study).phase is Phase.TUNING
    last = site.verbs.revisions(study)[-1]
    assert (last.who, last.why) == ("ann", "new SLO")
    wrong = send(browser, at, at, do="set", constraints="latency_p99_ms ~ 3", why="")
    assert wrong.status_code == 422
    assert "latency_p99_ms ~ 3" in text_of(wrong)
    assert len(site.verbs.revisions(study)) == last.revision


def test_a_preview_predicts_the_verdicts_after_the_change(site: Site, study: str) -> None:
    tune(site.verbs, slope)
    browser = site.signed_in("operator")
    body = {"protocol": 1, "constraints": ["latency_p99_ms <= 106"]}
    headers = {"Authorization": f"Bearer {TOKEN}"}
    path = f"/v1/studies/{study}/constraints"
    preview = site.browser().post(f"{path}/preview", json=body, headers=headers).json()
    assert stored(site, study).phase is Phase.HOLDING
    site.browser().put(path, json=body, headers=headers)
    after = [t.verdict for t in site.verbs.trials(study)]
    assert preview["after"] == {str(v): after.count(v) for v in Verdict}
    assert preview["phase"] == str(stored(site, study).phase)
    assert browser.get(f"/studies/{study}").status_code == 200


def test_an_operator_approves_a_proposal_on_its_page(site: Site) -> None:
    study = proposed(site.verbs)
    browser = site.signed_in("operator", "ann")
    page = f"/studies/{study}"
    revision = str(stored(site, study).revision)
    assert "Approve: hold it" not in text_of(site.signed_in("viewer").get(page))
    late = send(browser, f"{page}/approve", page, revision="1", why="")
    assert late.status_code == 409
    send(browser, f"{page}/approve", page, revision=revision, why="go")
    assert stored(site, study).phase is Phase.HOLDING


def test_a_study_is_created_by_a_form_and_faults_are_shown(site: Site) -> None:
    browser = site.signed_in("operator", "ann")
    form = {"device": "sim", "objective": "energy_j", "constraints": "latency_p99_ms <= 1.2x baseline",
            "policy": "scripted", "safety": "off", "trials": "7", "window_s": "5"}  # fmt: skip
    wrong = send(browser, "/studies/new", "/studies/new", **{**form, "trials": "many"})
    assert wrong.status_code == 422 and "trials: 'many' is not a number" in text_of(wrong)
    assert 'id="trials-error"' in wrong.text and 'name="window_s" value="5"' in wrong.text
    assert "<option selected>off" in wrong.text and "1.2x baseline</textarea>" in wrong.text
    texts = {"name": "x" * 5_000, "policy": "odd,odd"}  # each field has its own fault
    for name, value in [(f.name, texts.get(f.name, "-7 odd,odd")) for f in request_fields()]:
        answer = send(browser, "/studies/new", "/studies/new", **{**form, name: value})
        assert answer.status_code == 422, name
        assert f'id="{name}-error"' in answer.text, name
    ordinary = send(browser, "/studies/new", "/studies/new", **{**form, "device": "my-policy"})
    assert "my-policy" in text_of(ordinary) and 'id="policy-error"' not in ordinary.text
    made = send(browser, "/studies/new", "/studies/new", **form)
    (study,) = site.verbs.loop.store.studies.list()
    assert made.url.path == f"/studies/{study.id}"
    assert (study.terms.trials, study.terms.window_s, study.terms.safety) == (7, 5.0, "off")
    assert study.terms.max_window_s == 30.0
    assert "by ann" in site.verbs.events(study=study.id)[0].text


def test_all_devices_are_stopped_and_released_on_the_page(site: Site) -> None:
    browser = site.signed_in("operator", "ann")
    assert send(browser, "/stop", why="smoke").status_code == 422
    assert not site.verbs.stop_state().in_force
    send(browser, "/stop", why="smoke", confirm="STOP")
    assert site.verbs.stop_state().why == "smoke"
    assert "All devices are stopped by ann: smoke" in text_of(browser.get("/"))
    send(browser, "/lift", why="aired")
    assert not site.verbs.stop_state().in_force
    send(browser, "/stop", "/devices/sim", why="smoke", device="sim")
    page = text_of(browser.get("/devices/sim"))
    assert "Released by ann: smoke" in page and "0 of 1 confirmed" in page
    send(browser, "/lift", "/devices/sim", why="aired", device="sim")
    assert not site.verbs.stop_state("sim").in_force


def test_an_admin_makes_a_token_that_is_shown_once_and_revokes_it(site: Site) -> None:
    browser = site.signed_in()
    odd = send(browser, "/access", "/access", name="vera", role="viewer", days="9" * 5_000)
    assert odd.status_code == 422
    made = send(browser, "/access", "/access", name="vera", role="viewer", days="3")
    token = re.search(r"<code>(vera\.[^<]+)</code>", made.text)
    assert token is not None
    assert token[1] not in browser.get("/access").text
    assert site.verbs.access.caller(token[1]).role is AccessRole.VIEWER
    send(browser, "/access/revoke", "/access", name="vera")
    assert "revoked" in text_of(browser.get("/access"))


def test_a_forms_open_values_are_chosen_as_on_the_command_line() -> None:
    timed = device(metrics=(Metric("cpu_time_ms"), Metric("latency_p99_ms")))
    site = Site(operations(about=timed))
    browser = site.signed_in("operator")
    form = {"device": "sim", "objective": "", "constraints": "", "policy": "scripted"}
    both = {**form, "constraints": "latency_p99_ms <= 5", "no_constraint": "1"}
    assert send(browser, "/studies/new", "/studies/new", **both).status_code == 422
    send(browser, "/studies/new", "/studies/new", **form)
    (made,) = site.verbs.studies()
    assert made.objective == "minimize cpu_time_ms"
    assert made.constraints == ("latency_p99_ms <= 1.2x baseline",)
    site.verbs.stop(made.id, Change())
    send(browser, "/studies/new", "/studies/new", **{**form, "no_constraint": "1"})
    (free,) = (view for view in site.verbs.studies() if view.id != made.id)
    assert free.constraints == ()


def test_the_history_is_filtered_compared_and_taken_along(site: Site, study: str) -> None:
    tune(site.verbs, slope)
    browser = site.signed_in("viewer")
    assert f"{study}" in text_of(browser.get("/history?verdict=feasible"))
    assert "No trial matches" in text_of(browser.get("/history?device=other"))
    assert browser.get("/history?verdict=nice").status_code == 422
    assert f"{study}" in text_of(browser.get("/history?since=90000d"))
    assert browser.get("/history?since=yesterday").status_code == 422
    assert browser.get("/history?since=0001-01-01T00:00:00%2B14:00").status_code == 422
    both = text_of(browser.get(f"/compare?trial={study}:1&trial={study}:3"))
    assert "gpu.clock_mhz 1000 800" in both
    count = len(site.verbs.trials(study))
    rows = browser.get(f"/history/export?format=csv&study={study}").text.splitlines()
    assert len(rows) == count + 1
    assert len(browser.get("/history/export?format=json").json()) == count
    assert browser.get("/history/export?format=parquet").content[:4] == b"PAR1"
    assert browser.get("/history/export?format=docx").status_code == 422


@pytest.mark.promise("another site's form, or a hostile name, reaches an operator's browser")
def test_no_name_is_markup_on_any_page() -> None:
    site = Site(operations(about=device(HOSTILE, board=HOSTILE, workload=HOSTILE, shared=HOSTILE)))
    browser = site.signed_in()
    form = {"device": HOSTILE, "objective": "energy_j", "constraints": "", "policy": "scripted",
            "energy_share": "1"}  # fmt: skip
    send(browser, "/studies/new", "/studies/new", **form)
    (study,) = site.verbs.loop.store.studies.list()
    send(browser, f"/studies/{study.id}/pause", f"/studies/{study.id}", why=HOSTILE)
    send(browser, f"/studies/{study.id}/constraints", f"/studies/{study.id}/constraints",
         do="preview", constraints=HOSTILE, why=HOSTILE)  # fmt: skip
    own = (f"/studies/{study.id}", f"/studies/{study.id}/constraints")
    asking = (f"/history?device={HOSTILE}", f"/?find={HOSTILE}")
    pages = ("/", "/studies", "/studies/new", "/history", "/events", "/access", *own, *asking)
    for page in pages:
        answer = browser.get(page)
        assert "<script>alert" not in answer.text, page
        assert "55433" not in text_of(answer), page
        policy = answer.headers["content-security-policy"]
        assert "script-src 'self';" in policy and "unsafe" not in policy


def test_a_missing_page_is_a_page_and_the_api_still_answers_json(site: Site) -> None:
    browser = site.signed_in()
    missing = browser.get("/nowhere")
    assert missing.status_code == 404 and "there is no page /nowhere" in text_of(missing)
    assert browser.get("/studies/none").status_code == 404
    api = browser.get("/v1/nowhere")
    assert api.status_code == 404 and api.json()["code"] == "http"


def test_assets_come_from_here_and_are_kept_for_good_by_their_content(site: Site) -> None:
    page = site.browser().get("/login").text
    for link in re.findall(r'(?:href|src)="([^"]+)"', page):
        assert link.startswith(("/", "#")), link
    style = re.search(r'href="(/assets/app\.css\?[0-9a-f]+)"', page)
    assert style is not None
    browser = site.browser()
    assert "immutable" in browser.get(style[1]).headers["cache-control"]
    plain = browser.get("/assets/plotly.min.js", headers={"Accept-Encoding": "identity"})
    packed = browser.get("/assets/plotly.min.js")
    assert packed.content == plain.content and "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip" and packed.headers["vary"]
    assert int(packed.headers["content-length"]) < 1_500_000 < len(plain.content)
    for name in ("nothing.js", "../app.py", "%2e%2e%2fapp.py"):
        answer = browser.get(f"/assets/{name}", follow_redirects=False)
        assert answer.status_code in (303, 404), name


def test_a_studys_predictions_are_shown_or_reported_as_unknown(
    site: Site, monkeypatch: pytest.MonkeyPatch, study: str
) -> None:
    tune(site.verbs, slope)
    browser = site.signed_in("viewer")
    page = f"/studies/{study}/explain"
    assert "scripted has no model to explain" in text_of(browser.get(page))
    monkeypatch.setattr(site.verbs.loop, "policies", lambda _: Polythrottle())
    answer = browser.get(f"/v1{page}").json()
    assert answer["explained"] and len(answer["explanation"]["slices"]) == 2
    again = Site(site.verbs).signed_in("viewer", "vera")
    assert "gpu.clock_mhz and energy_j" in text_of(again.get(page))
    assert "Knob importance" in text_of(again.get(f"/studies/{study}/importance"))
    assert browser.get("/v1/studies/none/explain").status_code == 404
    assert "the search has ended" in answer["explanation"]["text"]
    for asked, reason in {
        "gpu.clock_mhz=600": "it is the best setting that was measured",
        "gpu.clock_mhz=800": "it keeps every limit, but its objective is not proven better",
        "gpu.clock_mhz=600 batch_size=4": "not tried: ",
        "gpu.clock_mhz=601": "601",
        "clock=600": "there is no knob 'clock'",
        "'": "cannot read the setting",
        "gpu.clock_mhz=600 gpu.clock_mhz=800": "gpu.clock_mhz is given twice",
    }.items():
        assert reason in text_of(again.get(page, params={"setting": asked})), asked


def test_each_setting_that_is_not_chosen_has_a_reason(
    site: Site, monkeypatch: pytest.MonkeyPatch, study: str
) -> None:
    tune(site.verbs, steep)
    monkeypatch.setattr(site.verbs.loop, "policies", lambda _: Polythrottle())
    broke = site.verbs.explain(study, "gpu.clock_mhz=600")
    assert "it breaks latency_p99_ms <= 120 in its windows" in broke.why_not
    for point in site.verbs.loop.store.studies.get(study).space.grid():
        asked = " ".join(f"{knob}={value}" for knob, value in point.items())
        answer = site.verbs.explain(study, asked)
        assert answer.why_not and answer.query is not None and answer.query.setting == point


def test_each_style_sheet_that_plotly_writes_is_allowed_by_its_hash() -> None:
    written = re.findall(r"""textContent='([^'\\]+)',document""", plotly_file().read_text("utf-8"))
    assert written
    for text in written:
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in HEADERS["Content-Security-Policy"]


def test_studies_are_found_by_their_names_and_compared(site: Site) -> None:
    browser = site.signed_in("operator", "ann")
    form = {"device": "sim", "policy": "scripted", "name": "night batch", "trials": "9"}
    made = send(browser, "/studies/new", "/studies/new", **form).url.path.rpartition("/")[2]
    assert "night batch" in text_of(browser.get(f"/studies/{made}"))
    assert made in text_of(browser.get("/studies?find=night&phase=baseline&since=1d&device=si"))
    assert made not in text_of(browser.get("/studies?find=day"))
    assert "No study matches" in text_of(browser.get("/studies?since=2099-01-01"))
    assert browser.get("/studies?sort=fast").status_code == 422
    tune(site.verbs, slope)
    for most in ("study=s1", "&".join(["study=s1"] * 5), "trial=" + ",".join(["s1:1"] * 5)):
        assert "give" in text_of(refused := browser.get(f"/compare?{most}")), most
        assert refused.status_code == 422
    page = browser.get(f"/compare?study={made}&study={made}").text
    assert page.count(f'href="/studies/{made}"') == 2 and "baseline energy_j" in page
    assert "Pareto fronts" in page
