#!/bin/bash
# Install jouletune on this host, upgrade it, or remove it. README.md beside this file tells how.
set -euo pipefail

usage() {
  cat <<'EOF'
usage: install.sh [--dry-run] [--agent-only] [--cpu] [--drm] [--jetson] [--unit]   install, or upgrade what is installed
       install.sh [--dry-run] --uninstall [--yes]  restore the hardware, then remove the program; data stay
       install.sh [--dry-run] --purge [--yes]      the same, and delete configuration, tokens and database

--agent-only   agent and actuator without the tuner (no torch, no database)
--cpu          the actuator may write CPU clocks and power limits; the agent may read the CPU's energy
--drm          the actuator may write power limits and clocks of AMD and Intel GPUs
--jetson       the actuator may write a Jetson board's clocks
--unit         the actuator may set granted flags of systemd services
--dry-run      show what would be done, change nothing
--yes          do not ask before removing; required without a terminal
--wait=S       with --uninstall: wait S seconds for CPUs that are offline, to restore their limits
--leave        with --uninstall: leave the limits of CPUs that are offline as they are; the journal stays
EOF
}

umask 022
SOURCE=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly SOURCE OPT=/opt/jouletune ETC=/etc/jouletune UNITS=/etc/systemd/system
readonly ACTUATOR_STATE=/var/lib/jouletune-actuator AGENT_STATE=/var/lib/jouletune-agent
readonly TUNER_STATE=/var/lib/jouletune-tuner
dry_run='' uninstall='' purge='' yes='' wait='' leave='' services=(tuner agent actuator) extras='[tuner,postgres]' boards=()
constraints=constraints.txt

main() {
  for option in "$@"; do
    case $option in
      --dry-run) dry_run=yes ;;
      --uninstall) uninstall=yes ;;
      --purge) uninstall=yes purge=yes ;;
      --yes) yes=yes ;;
      --wait=*) wait=${option#--wait=} ;;
      --leave) leave=yes ;;
      --cpu | --drm | --jetson | --unit) boards+=("${option#--}") ;;
      --agent-only) services=(agent actuator) extras='' ;;
      -h | --help) usage; exit 0 ;;
      *) usage >&2; exit 2 ;;
    esac
  done
  if [ -n "$yes$wait$leave" ] && [ -z "$uninstall" ]; then usage >&2; exit 2; fi
  if [ -n "$uninstall" ] && [ -z "$yes$dry_run" ] && [ ! -t 0 ]; then
    printf 'install.sh: no terminal to ask for confirmation; nothing is changed; give --yes\n' >&2
    exit 2
  fi
  [ -n "$dry_run" ] || [ "$(id -u)" = 0 ] || fail 'be root, or give --dry-run'
  if [ -n "$uninstall" ]; then remove; else install_or_upgrade; fi
}

install_or_upgrade() {
  local least=11
  [ "${services[0]}" = tuner ] || least=10
  python3 -c "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, $least))" 2>/dev/null ||
    fail "needs Python 3.$least or newer with venv (apt install python3-venv); 3.10 is enough for --agent-only"
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || constraints='constraints-310.txt'
  command -v systemctl >/dev/null || [ -n "$dry_run" ] || fail 'needs systemd'
  if [ -d $OPT/current ] && [ ! -L $OPT/current ]; then
    fail "$OPT is a Debian package's: upgrade that (docs/install.md), or apt remove it first; data stay"
  fi
  local release former running=() service
  release=$OPT/releases/$(fingerprint)
  former=$(readlink "$OPT/current" 2>/dev/null || true)
  build "$release"
  step 'stopping what runs, by the version that is installed'
  for service in "${services[@]}"; do
    if active "$service.service"; then running+=("jouletune-$service"); fi
  done
  # Stopped by the old version, which restores its settings.
  if [ ${#running[@]} -gt 0 ]; then run systemctl stop "${running[@]}"; fi
  if [ "$former" != "$release" ]; then
    step "switching to $release"
    [ -z "$former" ] || run ln -sfnT "$former" "$OPT/previous"
    run ln -sfnT "$release" "$OPT/current"
    drop_old_releases "$release" "$former"
  fi
  step "placing units and configuration; existing files in $ETC are kept"
  place_files
  step 'starting what ran'
  if [ ${#running[@]} -gt 0 ]; then run systemctl start "${running[@]}"; fi
  next_steps
}

# One release per content of the source and choice of extras.
fingerprint() {
  (cd "$SOURCE" && {
    echo "$extras"
    find pyproject.toml "$constraints" tuner agents policies db -type f ! -name '*.pyc' -print0 |
      LC_ALL=C sort -z | xargs -0 sha256sum
  }) | sha256sum | cut -c1-12
}

# A whole new environment; one that is incomplete is made again, the one in use is not touched.
build() {
  if [ -e "$1/complete" ]; then say "$1 is complete"; return; fi
  local copy=$OPT/source
  step "making an environment in $1"
  run rm -rf "$1" "$copy"
  run install -d -m 0755 "$OPT" "$OPT/releases" "$copy"
  run python3 -m venv "$1"
  # pip builds in the folder it is given: not in the checkout.
  run cp -r "$SOURCE"/{pyproject.toml,LICENSE,tuner,agents,policies,db} "$copy"
  if [ -e "$SOURCE/.git" ]; then
    run sh -c "git -C '$SOURCE' describe --always --dirty --abbrev=12 '--exclude=*' >'$copy/tuner/commit.txt' || true"
  fi
  step 'installing packages into it'
  # The tuner needs torch.
  live 'installing packages' '1 to 10 min' "$1/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir \
    -c "$SOURCE/$constraints" "$copy$extras"
  run rm -rf "$copy"
  run touch "$1/complete"
}

drop_old_releases() {
  local path
  for path in "$OPT"/releases/*; do
    if [ -d "$path" ] && [ "$path" != "$1" ] && [ "$path" != "$2" ]; then run rm -rf "$path"; fi
  done
}

place_files() {
  local here=$SOURCE/deploy service file board
  run install -d -m 0755 "$ETC"
  run install -Dm 0644 "$here/jouletune.sysusers" /etc/sysusers.d/jouletune.conf
  run systemd-sysusers /etc/sysusers.d/jouletune.conf
  for service in "${services[@]}"; do
    run install -m 0644 "$here/jouletune-$service.service" "$UNITS"
    file=$ETC/$service.toml
    if [ -e "$file" ]; then say "kept $file"; else run install -m 0644 "$here/$service.toml" "$file"; fi
  done
  for board in "${boards[@]}"; do
    run install -Dm 0644 "$here/actuator-$board.conf" "$UNITS/jouletune-actuator.service.d/$board.conf"
    if [ "$board" = drm ]; then
      run sh -c "bash '$here/drm-files.sh' >'$UNITS/jouletune-actuator.service.d/drm-files.conf'"
    fi
  done
  run install -Dm 0644 "$here/nvidia.rules" /etc/udev/rules.d/90-jouletune-nvidia.rules
  if command -v udevadm >/dev/null; then run udevadm control --reload; fi
  if [[ " ${boards[*]} " == *' cpu '* ]]; then
    run install -Dm 0644 "$here/powercap.rules" /etc/udev/rules.d/90-jouletune.rules
    if command -v udevadm >/dev/null; then
      run udevadm control --reload
      run udevadm trigger --subsystem-match=powercap
    fi
  fi
  run install -m 0644 "$here/jouletune-metrics.service" "$here/jouletune-metrics.timer" "$UNITS"
  if [ ! -e "$ETC/token" ] && [ "${services[0]}" = tuner ]; then
    run sh -c "umask 077 && python3 -c 'import secrets; print(secrets.token_urlsafe(32))' >$ETC/token"
  fi
  run install -Dm 0644 "$here/jouletune.tmpfiles" /etc/tmpfiles.d/jouletune.conf
  run systemd-tmpfiles --create /etc/tmpfiles.d/jouletune.conf
  run ln -sfnT "$OPT/current/bin/jouletune" /usr/local/bin/jouletune
  run systemctl daemon-reload
}

next_steps() {
  cat <<EOF
Installed. Nothing new has been started: grant knobs in $ETC/actuator.toml, name the devices in
$ETC/agent.toml, have the tuner's token in $ETC/token (or one of "jouletune token create --enrol"),
then: systemctl enable --now ${services[*]/#/jouletune-}
EOF
}

remove() {
  local unit
  if [ -d $OPT/current ] && [ ! -L $OPT/current ]; then fail "$OPT is a Debian package's: apt remove jouletune"; fi
  confirm
  step 'stopping the services and putting the hardware back'
  for unit in metrics.timer tuner.service agent.service; do
    if active "$unit"; then run systemctl stop "jouletune-$unit"; fi
  done
  restore_hardware
  step 'removing units and program'
  for unit in metrics.timer metrics.service {tuner,agent,actuator}.service; do
    if [ -e "$UNITS/jouletune-$unit" ]; then run systemctl disable --quiet "jouletune-$unit"; fi
    run rm -rf "$UNITS/jouletune-$unit" "$UNITS/jouletune-$unit.d"
  done
  run rm -rf "$OPT" /run/jouletune /run/jouletune-metrics
  run rm -f /usr/local/bin/jouletune /etc/sysusers.d/jouletune.conf /etc/tmpfiles.d/jouletune.conf
  run rm -f /etc/udev/rules.d/90-jouletune.rules /etc/udev/rules.d/90-jouletune-nvidia.rules
  if command -v systemctl >/dev/null; then
    run systemctl daemon-reload
    run systemctl reset-failed 'jouletune-*'
  fi
  if [ -z "$purge" ]; then
    say "removed; $ETC, $TUNER_STATE, $AGENT_STATE, $ACTUATOR_STATE and the users are kept (--purge deletes them)"
    return 0
  fi
  step 'deleting configuration, tokens, database and users'
  run rm -rf "$ETC" "$ACTUATOR_STATE" "$AGENT_STATE" "$TUNER_STATE"
  for unit in agent tuner; do
    if getent passwd "jouletune-$unit" >/dev/null; then run userdel "jouletune-$unit"; fi
  done
  if getent group jouletune >/dev/null; then run groupdel jouletune; fi
  say 'removed, with its data'
}

confirm() {
  local path answer=''
  say 'This stops the services, restores the hardware and removes the program.'
  if [ -n "$purge" ]; then
    say 'It also deletes permanently:'
    for path in "$ETC" "$TUNER_STATE" "$AGENT_STATE" "$ACTUATOR_STATE"; do say "  $path"; done
  fi
  [ -z "$yes$dry_run" ] || return 0
  read -rp 'Continue? [y/N] ' answer || true
  case $answer in
    y | Y | yes) ;;
    *) say 'nothing is changed'; exit 2 ;;
  esac
}

# The workload's knobs through the agent, then the devices by the actuator. Stays installed if it fails.
restore_hardware() {
  local bin=$OPT/current/bin
  if [ ! -e "$bin/python" ]; then
    all_put_back
    return 0
  fi
  local agent=() actuator=()
  read -ra agent <<<"$(environment_of agent)"
  read -ra actuator <<<"$(environment_of actuator)"
  if [ -d "$AGENT_STATE" ]; then
    run env "${agent[@]}" runuser -u jouletune-agent -g jouletune -- "$bin/jouletune" agent revert \
      --state-dir "$AGENT_STATE" || say 'warning: a workload may not be restored; see above'
  fi
  if active actuator.service; then run systemctl stop jouletune-actuator; fi
  if [ -d "$ACTUATOR_STATE" ]; then
    local code=0
    run env "${actuator[@]}" "$bin/python" -I -m agents.actuator.main restore ${wait:+--wait "$wait"} \
      "$ACTUATOR_STATE" || code=$?
    if [ $code = 3 ] && [ -n "$leave" ]; then return 0; fi
    [ $code != 3 ] || fail 'the CPUs above are offline with our limits; uninstall with --wait=60, or --leave'
    [ $code = 0 ] || fail 'a device is not restored; correct the cause, then uninstall again'
  fi
  all_put_back
}

# What drop-ins add to a service's environment: its devices may not be found without.
environment_of() { systemctl show -P Environment "jouletune-$1.service" 2>/dev/null || true; }

# A remaining journal means a device that is not restored.
all_put_back() {
  if [ -z "$dry_run" ] && compgen -G "$ACTUATOR_STATE/*.json"; then
    fail 'these are journals of devices that are not restored; install again, or restore them manually'
  fi
}

# Running, or about to be started again.
active() {
  case $(systemctl is-active "jouletune-$1" 2>/dev/null || true) in
    active | activating | deactivating | reloading) return 0 ;;
    *) return 1 ;;
  esac
}

run() {
  if [ -n "$dry_run" ]; then
    printf '+'
    printf ' %q' "$@"
    printf '\n'
  else
    "$@"
  fi
}

# Runs a command, on a terminal with a live line: how long it has taken, and how long it usually takes.
live() {
  local text=$1 usual=$2 begun=$SECONDS ticker
  shift 2
  if [ -n "$dry_run" ] || [ ! -t 1 ]; then
    run "$@"
    return
  fi
  while :; do
    printf '\r%s: %d s so far, usually %s' "$text" $((SECONDS - begun)) "$usual"
    sleep 1
  done &
  ticker=$!
  # shellcheck disable=SC2064  # the number of now
  trap "kill $ticker" EXIT
  "$@"
  trap - EXIT
  kill "$ticker"
  wait "$ticker" 2>/dev/null || true
  printf '\r\033[K'
}

step() { printf '[%(%T)T] %s\n' -1 "$*"; }

say() { printf '%s\n' "$*"; }

fail() {
  printf 'install.sh: %s\n' "$*" >&2
  exit 1
}

main "$@"
