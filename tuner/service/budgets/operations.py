"""The operators' verbs for groups that share watts."""

from __future__ import annotations

from functools import cached_property

from tuner.core import ACTIVE, NotFound
from tuner.service.budgets import declare
from tuner.service.budgets.divider import WattDivider
from tuner.service.budgets.views import budget_view, budget_views
from tuner.service.energy_price import EnergyPrice
from tuner.study.loop import Loop
from tuner.verbs.table import Verbs
from tuner.wire import AdmitDraft, BudgetDraft, BudgetView, Change, GridDraft, StudyView


class BudgetOperations(Verbs[StudyView]):
    """The verbs of budgets, over one loop and its store. A refused request changes nothing."""

    loop: Loop
    price: EnergyPrice

    @cached_property
    def divider(self) -> WattDivider:
        """Return the divider of the groups' watts."""
        return WattDivider(self.loop, self.price)

    def budgets(self) -> list[BudgetView]:
        """Return the groups that share watts, by name."""
        return budget_views(self.divider)

    def budget(self, name: str) -> BudgetView:
        """Return a group that shares watts. Raises NotFound."""
        return budget_view(self.divider, name)

    def set_budget(self, name: str, draft: BudgetDraft) -> BudgetView:
        """Declare a group, or change it; raises as `tuner.service.budgets.declare` does."""
        declare.set_budget(self.divider, name, draft)
        return self.budget(name)

    def release_budget(self, name: str, change: Change) -> None:
        """Remove a group; every member returns to its original setting. Raises NotFound."""
        declare.release_budget(self.divider, name, change)

    def admit(self, name: str, draft: AdmitDraft) -> BudgetView:
        """Admit devices to a group; raises as `tuner.service.budgets.declare` does."""
        declare.admit(self.divider, name, draft)
        return self.budget(name)

    def grid_event(self, draft: GridDraft) -> list[BudgetView]:
        """Limit groups for some time; raises as `tuner.service.budgets.declare` does."""
        return [self.budget(name) for name in declare.grid_event(self.divider, draft)]

    def end_grid_event(self, event: str, change: Change) -> list[BudgetView]:
        """End an event, or all events of a sender, before its time. Raises NotFound."""
        names = declare.end_events(self.loop.store.budgets, event)
        if not names:
            raise NotFound(f"there is no event {event!r}", hint="`budget show` lists them")
        self.loop.changes.note("grid", f"{', '.join(names)}: {event} ended by {change.who}")
        return [self.budget(name) for name in names]

    def under_budget(self, view: StudyView) -> StudyView:
        """Return a study's view with the caps that do not keep its limits.

        Caps change without a change of the study.
        """
        capped = self.divider.capped() if view.phase in ACTIVE else {}
        why = "; ".join(capped[name] for name in view.devices if name in capped)
        return view.model_copy(update={"capped": why}) if why else view
