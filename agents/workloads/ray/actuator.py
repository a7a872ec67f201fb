"""Sets a live deployment through the cluster's config; keeps the original on disk."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.workloads.ray.dashboard import Application, Dashboard, RayInstance
from agents.workloads.ray.deployment import (
    as_named,
    setting_of,
    trouble_of,
    version_of,
    with_setting,
)
from tuner import files
from tuner.core import (
    ActuationError,
    Clock,
    InvalidInput,
    NotFound,
    Setting,
    Space,
    render_setting,
    reraised,
    setting_key,
)

CHANGE_S = 75.0
"""Time in s for a change: Ray itself begins to warn about a lack of CPUs after 30 s."""
LOOK_S = 0.25


@dataclass(frozen=True, slots=True)
class Address:
    """The names of a deployment and its application."""

    application: str
    deployment: str

    def __str__(self) -> str:
        return f"{self.application}/{self.deployment}"

    def application_in(self, instance: RayInstance) -> Application:
        """Return the application. Raises NotFound if it, or the deployment, does not exist."""
        app = instance.applications.get(self.application)
        if app is None:
            names = ", ".join(instance.applications) or "none"
            raise NotFound(
                f"Ray Serve runs no application {self.application!r}",
                hint=f"available: {names}",
            )
        if self.deployment not in app.deployments:
            raise NotFound(
                f"the application {self.application!r} has no deployment {self.deployment!r}",
                hint=f"available: {', '.join(app.deployments) or 'none'} ({app.status})",
            )
        return app


@dataclass(frozen=True, slots=True)
class OriginalDeployment:
    """A deployment's state before our first change, and our requests since.

    `named` are the keys of the knobs that its config had. A deployment that is at none of `ours`
    was deployed again by another program.
    """

    version: str
    setting: Setting
    named: Mapping[str, Any]
    ours: tuple[Setting, ...] = ()


class OriginalDeploymentFile:
    """Keep the original on disk until it is restored, across crashes.

    Raises:
        StoreError: the write fails.
        ActuationError: the file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> OriginalDeployment | None:
        """Return the original; None if everything is restored."""
        try:
            record = json.loads(self._path.read_text(encoding="utf-8"))
            return OriginalDeployment(
                record["version"], record["setting"], record["named"], tuple(record["ours"])
            )
        except FileNotFoundError:
            return None
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise ActuationError(
                f"cannot read {self._path}, the record of the original deployment: {error}",
                hint="set the deployment to its original values, then delete that file",
            ) from None

    def keep(self, original: OriginalDeployment) -> None:
        """Write the original; it is on the disk when this returns."""
        table = {
            "version": original.version,
            "setting": dict(original.setting),
            "named": dict(original.named),
            "ours": [dict(setting) for setting in original.ours],
        }
        files.write(self._path, json.dumps(table, indent=1))

    def forget(self) -> None:
        """Remove the file: everything is restored."""
        files.remove(self._path)


def original_at(
    file: OriginalDeploymentFile, version: str, setting: Setting, named: Mapping[str, Any]
) -> OriginalDeployment:
    """Return the original deployment: the present one, or the stored one if a crash left our setting."""
    stored = file.read()
    if stored is not None and stored.version == version:
        ours = {setting_key(s) for s in (stored.setting, *stored.ours)}
        if setting_key(setting) in ours and stored.setting.keys() == setting.keys():
            return stored
    return OriginalDeployment(version, setting, named)


@dataclass(frozen=True)
class DeploymentActuator:
    """Set replicas, CPUs and batch size of one deployment."""

    _dashboard: Dashboard
    _address: Address
    _space: Space
    _original: OriginalDeployment
    _file: OriginalDeploymentFile
    _clock: Clock

    def close(self) -> None:
        """Close the connection."""
        self._dashboard.close()

    def read(self) -> Setting:
        """Return the requested setting of the deployment. Raises ActuationError, DeviceLost."""
        return setting_of(self._whole(self._instance()))

    def apply(self, setting: Setting) -> None:
        """Put a setting in force, and wait until every replica has it and no other is left.

        Raises:
            UnknownKnob, OutOfRange: the setting is not in the space; nothing was changed.
            ActuationError, DeviceLost: Ray refused it, or does not complete it (too few CPUs free).
            StoreError: the original cannot be stored; nothing was changed.
        """
        instance = self._instance()
        before = setting_of(self._whole(instance))
        self._space.check_named(setting)
        requested = {**before, **setting}
        if setting_key(requested) != setting_key(before):
            self._space.check(requested)
            self._ask(instance, before, requested)
        self._await(requested)
        if setting_key(requested) == setting_key(self._original.setting):
            self._file.forget()

    def _ask(self, instance: RayInstance, before: Setting, requested: Setting) -> None:
        """Store the original, then request a setting from Ray."""
        app, original, name = self._address.application_in(instance), self._original, self._address
        declared, whole = declared_config(app, name), self._whole(instance)
        back = setting_key(requested) == setting_key(original.setting)
        # Later changes by another program beside the knobs are not ours to undo.
        same = version_of(declared, whole) == original.version
        if back and same and instance.restores_unset_config_options:
            config = as_named(declared, name.deployment, original.named)
        else:
            config = with_setting(declared, name.deployment, whole, requested)
        self._file.keep(
            OriginalDeployment(
                original.version, original.setting, original.named, (before, requested)
            )
        )
        self._dashboard.deploy(instance.config(name.application, config))

    def _await(self, requested: Setting) -> None:
        """Wait until a setting is in force. Raises ActuationError, DeviceLost."""
        end = self._clock.monotonic() + CHANGE_S
        while True:
            app = self._address.application_in(self._instance())
            trouble = trouble_of(app, self._address.deployment, requested)
            if not trouble:
                return
            failed = app.status == "DEPLOY_FAILED"
            if failed or self._clock.monotonic() >= end:
                after = "" if failed else f" after {CHANGE_S:g} s"
                raise ActuationError(
                    f"{self._address} is not at {render_setting(requested)}{after}: {trouble}",
                    hint="check `serve status`, and `ray status` for free CPUs",
                )
            self._clock.sleep(LOOK_S)

    def _instance(self) -> RayInstance:
        """Return the state of Ray Serve. Raises ActuationError: the deployment is gone."""
        instance = self._dashboard.instance()
        with reraised(ActuationError, NotFound):
            self._address.application_in(instance)
        return instance

    def _whole(self, instance: RayInstance) -> Mapping[str, Any]:
        """Return the deployment's whole config."""
        app = self._address.application_in(instance)
        return app.deployments[self._address.deployment].deployment_config


def declared_config(app: Application, address: Address) -> Mapping[str, Any]:
    """Return the config that an application was deployed from.

    Raises:
        InvalidInput: a program deployed it (`serve.run`), so it has no config to change.
    """
    if app.deployed_app_config is None:
        raise InvalidInput(
            f"the application {address.application!r} was not "
            "deployed from a config file, so Ray cannot change it from outside",
            hint="create one with `serve build` and deploy it with `serve deploy`",
        )
    return app.deployed_app_config
