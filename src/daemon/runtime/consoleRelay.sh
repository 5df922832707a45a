# The relay between a server and its console. It appends the output of the server to `console.log` at once, and rotates
# the file if the service does not. It wakes up on output only.
#
# - The relay outlives the service and every signal but SIGKILL. It ends when all writers have closed the pipe.
# - The relay is not a process of the server: it has its own group and no marker, and is not killed with the server, so
#   that the last output arrives.
# - A server never waits for a disk: output that cannot be written is discarded for a second, then writing is retried.
# - `dd` writes each block before it reads the next, and reports their number: `0+0` is the end.
#
# Arguments: the `cgroup.procs` to join or an empty word; the offset in `console.log` at which the output of this run
# begins; the bytes of a block, the blocks between two checks of the size, and the size that is rotated. The working
# directory is the folder of the server.
trap '' HUP INT QUIT TERM USR1 USR2 PIPE
umask 077
if [ -n "$1" ]; then echo $$ > "$1"; fi
from=$2; block=$3; blocks=$4; longest=$5
exec 3<&0
last=0
missed=
while :; do
  if [ -n "$missed" ]; then
    if printf '\n[some output is missing here: %s]\n' "$missed" >> console.log; then missed=; fi
  fi
  if said=$(LC_ALL=C dd "bs=$block" "count=$blocks" 2>&1 >> console.log); then
    case $said in 0+0*) exit 0;; esac
  else
    case $said in
      *"No space left"*) missed='the disk was full';;
      *[Qq]uota*) missed='the disk quota was exceeded';;
      *) missed='the console could not be written';;
    esac
    dd "bs=$block" <&3 > /dev/null &
    sleep 1
    kill -KILL $!
    if wait $!; then exit 0; fi
    continue
  fi
  size=$(wc -c < console.log)
  size=$((size))
  if [ "$size" -lt "$last" ]; then from=0; fi
  last=$size
  if [ "$size" -le "$longest" ]; then continue; fi
  left=0
  if [ -e console.cut ]; then
    read -r begins left < console.cut
    old=$(wc -c < console.log.1)
    left=$((left + old))
    if [ "$begins" != earlier ]; then from=gone; fi
  fi
  printf '%s %s\n' "$from" "$left" > console.cut.tmp && mv -f console.cut.tmp console.cut
  mv -f console.log console.log.1
  from=0
  last=0
done
