"""All that operators can ask of a tuner.

One row a verb: its method, path and role; below them what it takes, what it is answered with and what it
does. From here come the routes (`tuner.service.http`), both clients (`tuner.client`), what the command
line asks for here and there, the tests of who may do what, and the page of the HTTP API. What it takes is
the path's by name, then one message as the body, else the query.
"""
# mypy: disable-error-code="empty-body"

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

from annotated_types import Ge, Le

from db.history import HistoryQuestion, HistoryRow
from tuner.core import AccessRole, AuditEntry, Event
from tuner.verbs.row import Asking, Seen, verb
from tuner.wire import (
    Change,
    ConstraintChange,
    ConstraintPreview,
    Decision,
    DeviceView,
    ExplanationView,
    ExplorationChange,
    FleetDiff,
    FleetDraft,
    FleetText,
    FleetView,
    NewToken,
    ReplicaView,
    RevisionView,
    SettingView,
    StopView,
    StudyDraft,
    StudyReport,
    StudyView,
    TokenDraft,
    TokenView,
    TrialView,
)

ADMIN, OPERATOR, VIEWER = AccessRole.ADMIN, AccessRole.OPERATOR, AccessRole.VIEWER
Count = Annotated[int, Ge(1), Le(10_000)]
Place = Annotated[int, Ge(0), Le(2**63 - 1)]


class Verbs(Asking[Seen]):
    """What people ask about studies, devices and all that happened.

    Whatever names a study may name the beginning of its id, where no other begins so; only `delete`
    wants all of it. Each raises the family's errors.
    """

    @verb("POST", "/v1/studies", OPERATOR, status=201)
    def create(self, draft: StudyDraft) -> Seen:
        """Create a study; what the draft leaves open is chosen by what its first device measures."""

    @verb("GET", "/v1/studies", VIEWER)
    def studies(self) -> Sequence[Seen]:
        """List all studies, oldest first."""

    @verb("GET", "/v1/studies/{study}", VIEWER)
    def study(self, study: str) -> Seen:
        """Show one study."""

    @verb("DELETE", "/v1/studies/{study}", OPERATOR, status=204, query_fields=["who"])
    def delete(self, study: str, change: Change) -> None:
        """Delete a stopped study with everything it measured."""

    @verb("POST", "/v1/studies/{study}/pause", OPERATOR)
    def pause(self, study: str, change: Change) -> Seen:
        """Stop trying until it is resumed; the devices go back to their original settings."""

    @verb("POST", "/v1/studies/{study}/resume", OPERATOR)
    def resume(self, study: str, change: Change) -> Seen:
        """Continue where a paused study was."""

    @verb("POST", "/v1/studies/{study}/stop", OPERATOR)
    def stop(self, study: str, change: Change) -> Seen:
        """End a study permanently; its devices are free."""

    @verb("POST", "/v1/studies/{study}/approve", OPERATOR)
    def approve(self, study: str, decision: Decision) -> Seen:
        """Hold what a study proposes."""

    @verb("POST", "/v1/studies/{study}/reject", OPERATOR)
    def reject(self, study: str, decision: Decision) -> Seen:
        """End a study whose proposal is not wanted."""

    @verb("PUT", "/v1/studies/{study}/constraints", OPERATOR)
    def set_constraints(self, study: str, change: ConstraintChange) -> Seen:
        """Replace all constraints of a study; its history is judged again."""

    @verb("POST", "/v1/studies/{study}/constraints/preview", VIEWER)
    def preview(self, study: str, change: ConstraintChange) -> ConstraintPreview:
        """Tell what other constraints would change; nothing is changed."""

    @verb("PUT", "/v1/studies/{study}/exploration", OPERATOR)
    def set_exploration(self, study: str, change: ExplorationChange) -> Seen:
        """Replace when and how much a study may explore: windows, shares, the least saving, a freeze."""

    @verb("POST", "/v1/studies/{study}/freeze", OPERATOR)
    def freeze(self, study: str, change: Change) -> Seen:
        """Try nothing more until the study is thawed; a hold stays."""

    @verb("POST", "/v1/studies/{study}/thaw", OPERATOR)
    def thaw(self, study: str, change: Change) -> Seen:
        """Let a frozen study try again."""

    @verb("GET", "/v1/studies/{study}/revisions", VIEWER)
    def revisions(self, study: str) -> Sequence[RevisionView]:
        """Tell who changed a study, when and why."""

    @verb("GET", "/v1/studies/{study}/trials", VIEWER)
    def trials(self, study: str) -> Sequence[TrialView]:
        """List every trial of a study with its verdict as of now."""

    @verb("GET", "/v1/studies/{study}/best", VIEWER)
    def best(self, study: str) -> SettingView:
        """Show the held setting, or the best feasible setting measured."""

    @verb("GET", "/v1/studies/{study}/pareto", VIEWER)
    def pareto(self, study: str) -> Sequence[SettingView]:
        """List the settings that none other beats in objective and constraints at once."""

    @verb("GET", "/v1/studies/{study}/explain", VIEWER)
    def explain(self, study: str) -> ExplanationView:
        """Tell what a study's policy believes: what each knob does, and what is not tried."""

    @verb("GET", "/v1/studies/{study}/report", VIEWER)
    def report(self, study: str) -> StudyReport:
        """Report what a study gained and cost."""

    @verb("GET", "/v1/fleet", VIEWER)
    def fleet(self) -> FleetView:
        """Tell how every device stands, and what was saved so far."""

    @verb("POST", "/v1/fleet/diff", VIEWER)
    def diff_fleet(self, draft: FleetDraft) -> FleetDiff:
        """List what a fleet file would change; nothing is changed."""

    @verb("POST", "/v1/fleet/apply", OPERATOR)
    def apply_fleet(self, draft: FleetDraft) -> FleetDiff:
        """Create, change and replace studies as a fleet file declares; applied again it changes nothing."""

    @verb("GET", "/v1/fleet/file", VIEWER)
    def export_fleet(self) -> FleetText:
        """Write the active studies as a fleet file."""

    @verb("GET", "/v1/devices", VIEWER)
    def devices(self) -> Sequence[DeviceView]:
        """List all devices, what is applied to them and which study has them."""

    @verb("DELETE", "/v1/devices/{device}", OPERATOR, status=204, query_fields=["who"])
    def forget(self, device: str, change: Change) -> None:
        """Forget a device that is offline and in no active study."""

    @verb("GET", "/v1/replicas", VIEWER)
    def replicas(self) -> Sequence[ReplicaView]:
        """List the tuners that work on this database."""

    @verb("GET", "/v1/stop", VIEWER)
    def stop_state(self) -> StopView:
        """Say whether every device is stopped, and which are back at their original settings."""

    @verb("POST", "/v1/stop", OPERATOR)
    def stop_all(self, change: Change) -> StopView:
        """Put every device back to its original setting, until it is lifted."""

    @verb("DELETE", "/v1/stop", OPERATOR, query_fields=["who", "why"])
    def lift(self, change: Change) -> StopView:
        """Let the studies continue as they were before everything was stopped."""

    @verb("GET", "/v1/history", VIEWER)
    def history(
        self, question: HistoryQuestion, last: Count | None = None, skip: Place = 0
    ) -> Sequence[HistoryRow]:
        """List trials across studies, by start; with `last` the latest, latest first, but for `skip`."""

    @verb("GET", "/v1/events", VIEWER)
    def events(
        self,
        study: str | None = None,
        device: str | None = None,
        last: Count = 100,
        after: Place | None = None,
    ) -> Sequence[Event]:
        """List the latest events, oldest first; with `after` the first ones after that."""

    @verb("GET", "/v1/events/stream", VIEWER)
    def follow(
        self, study: str | None = None, device: str | None = None, after: Place | None = None
    ) -> Iterator[Event]:
        """Stream events in order, from now on or after one; without an id: its study has changed."""

    @property
    def access(self) -> TokenVerbs:
        """The verbs on tokens."""


class TokenVerbs(Asking[StudyView]):
    """What an admin asks about tokens and about what people did."""

    @verb("POST", "/v1/tokens", ADMIN, status=201)
    def create(self, draft: TokenDraft) -> NewToken:
        """Make a token; it is shown this once."""

    @verb("GET", "/v1/tokens", ADMIN)
    def tokens(self) -> Sequence[TokenView]:
        """List tokens by name, without themselves."""

    @verb("DELETE", "/v1/tokens/{name}", ADMIN, status=204)
    def revoke(self, name: str) -> None:
        """Revoke a token."""

    @verb("GET", "/v1/audit", ADMIN)
    def audit(self, last: Count = 100, who: str | None = None) -> Sequence[AuditEntry]:
        """List the latest changes and refusals, oldest first."""
