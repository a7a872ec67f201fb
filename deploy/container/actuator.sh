#!/bin/sh
# The actuator without a network, and a restore however it ends: as ExecStopPost= of its unit. Killed, broken
# or stopped, its devices are restored before the container ends.
python=/opt/jouletune/current/bin/python
[ "$1" = apart ] || exec unshare --net "$0" apart
trap 'kill -TERM "$serving"' TERM INT
"$python" -I -m agents.actuator.main serve /etc/jouletune/actuator.toml &
serving=$!
wait "$serving"
code=$?
# A signal interrupts `wait`; the process still restores.
while kill -0 "$serving" 2>/dev/null; do
  wait "$serving"
  code=$?
done
"$python" -I -m agents.actuator.main restore
exit "$code"
