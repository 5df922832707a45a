/**
 * The parent of every server process, in POSIX sh. It outlives this service, so that the exit code is recorded also
 * while nobody watches:
 *
 * - it claims the run by creating the run record (`set -C`: a record that is there already ends it), so that a run
 *   that was given up before it began can never begin afterwards;
 * - it joins the cgroup, where one is given, before the server exists;
 * - signals to the group reach it too: it outlives them (`trap :`) and the server's own dispositions stay default;
 * - `exec` in a subshell runs programs only, never a builtin of the shell, and passes the words on as they are;
 * - what the shell itself says (`Killed`) does not belong in the console: its stderr goes nowhere;
 * - no variable of the server is in its environment: the words that it runs read them from descriptor 3
 *   (isolationScript.ts), which is empty once the server runs.
 *
 * Arguments: run record, exit file, `cgroup.procs` or nothing, token, pid and start time of the relay of the console,
 * how many processes there are from the shim to the server's own, then the words that run the script.
 */
export const SHIM = `
trap : HUP INT QUIT TERM USR1 USR2 PIPE
run=$1; end=$2; group=$3; token=$4; relay=$5; relayed=$6; helpers=$7; shift 7
exec 4>&2 2>/dev/null
if [ -n "$group" ]; then echo $$ > "$group" || { echo "cannot join the cgroup" >&4; exit 125; }; fi
read -r boot < /proc/sys/kernel/random/boot_id
read -r stat < /proc/$$/stat
start=$(set -f; set -- \${stat##*) }; echo "\${20}")
mask=$(umask)
umask 077
set -C
printf '{"token":"%s","pid":%s,"start":"%s","boot":"%s","relay":{"pid":%s,"start":"%s"},"helpers":%s}\\n' \\
  "$token" $$ "$start" "$boot" "$relay" "$relayed" "$helpers" > "$run" ||
  { echo "cannot record the run" >&4; exit 125; }
set +C
( umask "$mask" && exec "$@" 2>&4 4>&- )
code=$?
printf '%s\\n' "$code" > "$end"
exit "$code"
`
