# Starts a process at a level of isolation. The text before it defines the variable `muster_in_view` and the functions
# `muster_prepare`, `muster_exists` and `muster_exec`, all of which isolationScript.ts writes. Braces around all of it make
# the shell read the whole script first: the service empties it when the program is about to run.
muster_prepare || { echo "[Muster cannot isolate the process, see above]" >&2; exit 125; }
muster_exists || exit 121
# The service finds by the position in this file that the program is about to run.
read -r begun <&3
exec 3<&-
if [ -z "$muster_in_view" ]; then muster_exec; fi
# This shell stays as process 1 of the namespace of the server: process 1 does not get signals without a handler.
trap : HUP INT QUIT TERM USR1 USR2 PIPE
exec 4>&2 2>/dev/null
( muster_exec 2>&4 4>&- )
exit "$?"
