# The parent of every server process. It outlives the service, so that the exit code is always recorded:
#
# - it claims the run by creating the run record (`set -C` fails if there is one), so that an abandoned run can never
#   begin later;
# - it joins the cgroup, if one is given, before the server exists;
# - signals to the group reach it too: it ignores them (`trap :`), and the server keeps the default dispositions;
# - `exec` in a subshell runs programs only, never shell builtins, and does not change the words;
# - it writes the exit code into an existing file that holds a block, so that a full disk does not lose the code;
# - messages of the shell (`Killed`) do not belong in the console: its stderr is discarded;
# - its environment has no variable of the server: the program reads them from descriptor 3 (isolationScript.ts), which
#   is empty once the server runs.
#
# Arguments: run record, exit file, `cgroup.procs` or an empty word, token, pid and start time of the console's relay,
# the number of processes from the shim to the server, whether it has a terminal (`true`, `false`), then the command
# that runs the script.
trap : HUP INT QUIT TERM USR1 USR2 PIPE
run=$1; end=$2; group=$3; token=$4; relay=$5; relayed=$6; helpers=$7; terminal=$8; shift 8
exec 4>&2 2>/dev/null
if [ -n "$group" ]; then echo $$ > "$group" || { echo "cannot join the cgroup" >&4; exit 125; }; fi
read -r boot < /proc/sys/kernel/random/boot_id
read -r stat < /proc/$$/stat
start=$(set -f; set -- ${stat##*) }; echo "${20}")
mask=$(umask)
umask 077
set -C
printf '{"token":"%s","pid":%s,"start":"%s","boot":"%s","relay":{"pid":%s,"start":"%s"},"helpers":%s,"terminal":%s}\n' \
  "$token" $$ "$start" "$boot" "$relay" "$relayed" "$helpers" "$terminal" > "$run" ||
  { echo "cannot record the run" >&4; exit 125; }
set +C
( umask "$mask" && exec "$@" 2>&4 4>&- )
code=$?
printf '%s\n' "$code" 1<> "$end"
exit "$code"
