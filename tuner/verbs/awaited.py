"""The verbs as coroutines. Generated from `tuner.verbs.table`."""
# mypy: disable-error-code="empty-body"

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Annotated

from annotated_types import Ge, Le
from pydantic import AwareDatetime

from db.history import HistoryQuestion, HistoryRow
from tuner.core import AccessRole, AuditEntry, Event
from tuner.verbs.row import Asking, Seen, verb
from tuner.wire import (
    AdmitDraft,
    BudgetDraft,
    BudgetView,
    Change,
    ConstraintChange,
    ConstraintPreview,
    ConstraintRevision,
    Decision,
    DeviceView,
    EvidenceArchive,
    ExplanationView,
    ExplorationChange,
    FleetDiff,
    FleetDraft,
    FleetText,
    FleetView,
    GridDraft,
    NewToken,
    ObservedView,
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
GRID = AccessRole.GRID
Count = Annotated[int, Ge(1), Le(10_000)]
Place = Annotated[int, Ge(0), Le(2**63 - 1)]


class AsyncVerbs(Asking[Seen]):
    """The requests on studies, devices, budgets and events. Each raises TuningError.

    A study may be named by the beginning of its id, if no other id begins with it; `delete` needs the whole
    id.
    """

    @verb("POST", "/v1/studies", OPERATOR, status=201)
    async def create(self, draft: StudyDraft) -> Seen:
        """Create a study; defaults of the draft follow from the metrics of its first device."""

    @verb("GET", "/v1/studies", VIEWER)
    async def studies(self) -> Sequence[Seen]:
        """List all studies, oldest first."""

    @verb("GET", "/v1/studies/{study}", VIEWER)
    async def study(self, study: str) -> Seen:
        """Show one study."""

    @verb("DELETE", "/v1/studies/{study}", OPERATOR, status=204, query_fields=["who"])
    async def delete(self, study: str, change: Change) -> None:
        """Delete a stopped study and its measurements."""

    @verb("POST", "/v1/studies/{study}/pause", OPERATOR)
    async def pause(self, study: str, change: Change) -> Seen:
        """Pause a study until it is resumed; its devices return to their original settings."""

    @verb("POST", "/v1/studies/{study}/resume", OPERATOR)
    async def resume(self, study: str, change: Change) -> Seen:
        """Continue a paused study."""

    @verb("POST", "/v1/studies/{study}/stop", OPERATOR)
    async def stop(self, study: str, change: Change) -> Seen:
        """End a study permanently; its devices are free."""

    @verb("POST", "/v1/studies/{study}/approve", OPERATOR)
    async def approve(self, study: str, decision: Decision) -> Seen:
        """Hold the proposal of a study."""

    @verb("POST", "/v1/studies/{study}/reject", OPERATOR)
    async def reject(self, study: str, decision: Decision) -> Seen:
        """Reject the proposal of a study and end it."""

    @verb("PUT", "/v1/studies/{study}/constraints", OPERATOR)
    async def set_constraints(self, study: str, change: ConstraintChange) -> Seen:
        """Replace all constraints of a study; its history is judged again."""

    @verb("POST", "/v1/studies/{study}/constraints/preview", VIEWER)
    async def preview(self, study: str, change: ConstraintChange) -> ConstraintPreview:
        """Preview the effect of other constraints; change nothing."""

    @verb("GET", "/v1/studies/{study}/constraints", VIEWER)
    async def constraint_changes(self, study: str) -> Sequence[ConstraintRevision]:
        """List the changes of a study's constraints, and the setting held before and after each."""

    @verb("PUT", "/v1/studies/{study}/exploration", OPERATOR)
    async def set_exploration(self, study: str, change: ExplorationChange) -> Seen:
        """Replace the limits of exploring: windows, shares, the least saving, a freeze."""

    @verb("POST", "/v1/studies/{study}/freeze", OPERATOR)
    async def freeze(self, study: str, change: Change) -> Seen:
        """Start no trials until the study is thawed; a hold stays."""

    @verb("POST", "/v1/studies/{study}/thaw", OPERATOR)
    async def thaw(self, study: str, change: Change) -> Seen:
        """Let a frozen study start trials again."""

    @verb("GET", "/v1/studies/{study}/revisions", VIEWER)
    async def revisions(self, study: str) -> Sequence[RevisionView]:
        """List the changes of a study with author, time and reason."""

    @verb("GET", "/v1/studies/{study}/trials", VIEWER)
    async def trials(self, study: str) -> Sequence[TrialView]:
        """List every trial of a study with its current verdict."""

    @verb("GET", "/v1/studies/{study}/best", VIEWER)
    async def best(self, study: str) -> SettingView:
        """Show the held setting, or the best feasible setting measured."""

    @verb("GET", "/v1/studies/{study}/pareto", VIEWER)
    async def pareto(self, study: str) -> Sequence[SettingView]:
        """List the Pareto front of objective and constraints."""

    @verb("GET", "/v1/studies/{study}/explain", VIEWER)
    async def explain(self, study: str, setting: str | None = None) -> ExplanationView:
        """Show the predicted effect of each knob; why `setting`, like `knob=value`, is not chosen."""

    @verb("GET", "/v1/studies/{study}/report", VIEWER)
    async def report(self, study: str, since: AwareDatetime | None = None) -> StudyReport:
        """Report the saving of a study, also by period or since a time, and the cost of exploring."""

    @verb("GET", "/v1/studies/{study}/evidence", VIEWER)
    async def evidence(self, study: str) -> EvidenceArchive:
        """Make an archive from which others compute the report again; the audit log has its digest."""

    @verb("GET", "/v1/fleet", VIEWER)
    async def fleet(self) -> FleetView:
        """Show the status of every device and the savings so far."""

    @verb("POST", "/v1/fleet/diff", VIEWER)
    async def diff_fleet(self, draft: FleetDraft) -> FleetDiff:
        """List the changes that a fleet file would make; change nothing."""

    @verb("POST", "/v1/fleet/apply", OPERATOR)
    async def apply_fleet(self, draft: FleetDraft) -> FleetDiff:
        """Create, change and replace studies as a fleet file declares. Idempotent."""

    @verb("GET", "/v1/fleet/file", VIEWER)
    async def export_fleet(self) -> FleetText:
        """Write the active studies and the budgets as a fleet file."""

    @verb("GET", "/v1/devices", VIEWER)
    async def devices(self) -> Sequence[DeviceView]:
        """List all devices with their applied setting and study."""

    @verb("GET", "/v1/devices/{device}/observed", VIEWER)
    async def observed(self, device: str, since: AwareDatetime | None = None) -> ObservedView:
        """Show what was measured of a device that is only observed, since a time or in the last day."""

    @verb("DELETE", "/v1/devices/{device}", OPERATOR, status=204, query_fields=["who"])
    async def forget(self, device: str, change: Change) -> None:
        """Remove an offline device without an active study."""

    @verb("GET", "/v1/budgets", VIEWER)
    async def budgets(self) -> Sequence[BudgetView]:
        """List the groups that share watts."""

    @verb("GET", "/v1/budgets/{name}", VIEWER)
    async def budget(self, name: str) -> BudgetView:
        """Show a group: its watts, and the cap of each member."""

    @verb("PUT", "/v1/budgets/{name}", OPERATOR)
    async def set_budget(self, name: str, draft: BudgetDraft) -> BudgetView:
        """Declare a group that shares watts, or change it."""

    @verb("POST", "/v1/budgets/{name}/admit", OPERATOR)
    async def admit(self, name: str, draft: AdmitDraft) -> BudgetView:
        """Admit devices to a group whose patterns select them."""

    @verb("DELETE", "/v1/budgets/{name}", OPERATOR, status=204, query_fields=["who", "why"])
    async def release_budget(self, name: str, change: Change) -> None:
        """Remove a group; its devices return to their original settings."""

    @verb("POST", "/v1/events/grid", GRID)
    async def grid_event(self, draft: GridDraft) -> Sequence[BudgetView]:
        """Limit budgets for some time."""

    @verb("DELETE", "/v1/events/grid/{event}", OPERATOR, query_fields=["who", "why"])
    async def end_grid_event(self, event: str, change: Change) -> Sequence[BudgetView]:
        """End a grid event, or all events of a sender, early."""

    @verb("GET", "/v1/replicas", VIEWER)
    async def replicas(self) -> Sequence[ReplicaView]:
        """List the tuners of this database."""

    @verb("GET", "/v1/stop", VIEWER)
    async def stop_state(self, device: str | None = None) -> StopView:
        """Show the stop of all devices, or of one, and the devices that have confirmed it."""

    @verb("POST", "/v1/stop", OPERATOR)
    async def stop_all(self, change: Change, device: str | None = None) -> StopView:
        """Restore every device, or one, to its original setting until the stop is lifted."""

    @verb("DELETE", "/v1/stop", OPERATOR, query_fields=["who", "why"])
    async def lift(self, change: Change, device: str | None = None) -> StopView:
        """Lift the stop of all devices, or of one; studies continue."""

    @verb("GET", "/v1/history", VIEWER)
    async def history(
        self, question: HistoryQuestion, last: Count | None = None, skip: Place = 0
    ) -> Sequence[HistoryRow]:
        """List trials of all studies by start. With `last` the latest N, latest first, after `skip`."""

    @verb("GET", "/v1/events", VIEWER)
    async def events(
        self,
        study: str | None = None,
        device: str | None = None,
        last: Count = 100,
        after: Place | None = None,
    ) -> Sequence[Event]:
        """List the latest events, oldest first; with `after`, the first events after that one."""

    @verb("GET", "/v1/events/stream", VIEWER)
    def follow(
        self, study: str | None = None, device: str | None = None, after: Place | None = None
    ) -> AsyncIterator[Event]:
        """Stream events in order, from now or after an id. An event without an id marks a changed study."""

    @property
    def access(self) -> AsyncTokenVerbs:
        """The verbs on tokens."""


class AsyncTokenVerbs(Asking[StudyView]):
    """The admin's requests on tokens and on the log of changes and refusals."""

    @verb("POST", "/v1/tokens", ADMIN, status=201)
    async def create(self, draft: TokenDraft) -> NewToken:
        """Create a token; it is shown only once."""

    @verb("GET", "/v1/tokens", ADMIN)
    async def tokens(self) -> Sequence[TokenView]:
        """List tokens by name, without their secrets."""

    @verb("DELETE", "/v1/tokens/{name}", ADMIN, status=204)
    async def revoke(self, name: str) -> None:
        """Revoke a token."""

    @verb("GET", "/v1/audit", ADMIN)
    async def audit(self, last: Count = 100, who: str | None = None) -> Sequence[AuditEntry]:
        """List the latest changes and refusals, oldest first."""
