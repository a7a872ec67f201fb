# What maintainer scripts share; the builder puts it in front of each.
set -e
# shellcheck disable=SC2034 # each script uses some of them
readonly ETC=/etc/jouletune ACTUATOR_STATE=/var/lib/jouletune-actuator AGENT_STATE=/var/lib/jouletune-agent
# shellcheck disable=SC2034
readonly SCHEMA=@SCHEMA@ TUNER_STATE=/var/lib/jouletune-tuner BIN=/opt/jouletune/current/bin
# What ran before an upgrade, one file a unit.
readonly RAN=/run/jouletune-package

say() { echo "$DPKG_MAINTSCRIPT_PACKAGE: $*"; }

fail() {
  echo "$DPKG_MAINTSCRIPT_PACKAGE: $*" >&2
  exit 1
}

booted() { [ -d /run/systemd/system ]; }

# Running, or about to be started again.
active() {
  booted || return 1
  case $(systemctl is-active "jouletune-$1" 2>/dev/null || true) in
    active | activating | deactivating | reloading) return 0 ;;
    *) return 1 ;;
  esac
}

# Stopped by the installed version, which restores its settings.
stop_and_note() {
  for unit in "$@"; do
    if active "$unit"; then
      mkdir -p "$RAN"
      touch "$RAN/$unit"
      systemctl stop "jouletune-$unit"
    fi
  done
}

start_noted() {
  for unit in "$@"; do
    if [ -e "$RAN/$unit" ]; then
      rm -f "$RAN/$unit"
      systemctl start "jouletune-$unit" || say "$unit does not start: journalctl -u jouletune-$unit"
    fi
  done
}

reload_units() { if booted; then systemctl daemon-reload; fi; }

# A database of a newer release is left alone: this one could not read it. Asked as its owner, so that no
# file of root's is left beside it.
refuse_newer_database() {
  database=$TUNER_STATE/jouletune.sqlite
  [ -e "$database" ] && getent passwd jouletune-tuner >/dev/null || return 0
  found=$(runuser -u jouletune-tuner -- python3 -c '
import sqlite3, sys
try:
    database = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True)
    print(database.execute("SELECT version_num FROM alembic_version").fetchone()[0])
except (sqlite3.Error, TypeError):
    print("none")' "$database") || found=none
  if [ "$found" != none ] && [ "$found" -gt "$SCHEMA" ] 2>/dev/null; then
    fail "$database was written by a newer jouletune (schema $found; @VERSION@ reads up to $SCHEMA)." \
      "Nothing is changed. Keep the newer package, or first put back a copy of that time: see Roll back in" \
      "/usr/share/doc/jouletune/README.md"
  fi
}
