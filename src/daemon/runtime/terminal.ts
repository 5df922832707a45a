/**
 * The pseudo-terminal of a plain process. A holder, which outlives this service as the relay of the console does,
 * copies between the terminal and the console. The holder is in perl, which Debian always has: Node cannot make a
 * pseudo-terminal.
 */
import { constants } from "node:fs"
import { Effect } from "effect"
import type { ProcessIsolation } from "../../domain/SystemInfo.ts"
import { io, openFile } from "../disk/fsio.ts"
import { type Child, spawnChild } from "../process/spawnChild.ts"
import { LaunchFailed, type RunUser } from "./Runtime.ts"

/** The size of every terminal. */
export const TERMINAL_SIZE = { rows: 40, columns: 120 } as const
/** A console has lines and no cursor, so programs must not move one. */
export const TERMINAL_ENV = { TERM: "dumb" } as const
/** The byte of ^C. */
export const INTERRUPT = "\x03"

/**
 * Holds the terminal until all other processes have closed it.
 *
 * - Descriptor 0 is the input, 1 the output. The program writes the number of its descriptor of the terminal to 2, and
 * keeps the terminal open until the other side closes 2: then the server has it, or this service has ended.
 * - The terminal does not echo, since the console would have each line of input, and output cannot be suspended by ^S.
 * - A server that does not read blocks its input only. Without a reader, output is discarded.
 * - `\r\n` becomes `\n`, also if the program sets the terminal itself.
 *
 * Argument: the `cgroup.procs` to join or an empty word.
 */
const HOLDER = `
use strict;
$SIG{$_} = "IGNORE" for qw(HUP INT QUIT TERM USR1 USR2 PIPE);
my ($group) = @ARGV;
if ($group ne "" && open(my $procs, ">", $group)) { print $procs $$; close $procs; }
sub done {
  my ($what, $result) = @_;
  return if $result;
  print STDERR "$what: $!";
  exit 1;
}
done("/dev/ptmx", sysopen(my $terminal, "/dev/ptmx", 04402));
my ($number, $modes) = (pack("i", 0), pack("x64"));
done("unlock", ioctl($terminal, 0x40045431, $number));
done("number", ioctl($terminal, 0x80045430, $number));
done("modes", ioctl($terminal, 0x5401, $modes));
my ($input, $output, $control, $local, $rest) = unpack("L4a*", $modes);
$modes = pack("L4a*", $input & ~0x400, $output, $control, $local & ~8, $rest);
done("modes", ioctl($terminal, 0x5402, $modes));
my $size = pack("S4", ${TERMINAL_SIZE.rows}, ${TERMINAL_SIZE.columns}, 0, 0);
done("size", ioctl($terminal, 0x5414, $size));
my $path = "/dev/pts/" . unpack("i", $number);
done($path, sysopen(my $server, $path, 0402));
syswrite(STDERR, fileno($server) . "\\n");
my ($pending, $return, $reads) = ("", "", 1);
while (1) {
  my ($from, $to) = ("", "");
  vec($from, fileno($terminal), 1) = 1;
  vec($from, 0, 1) = 1 if $reads && $pending eq "";
  vec($from, 2, 1) = 1 if $server;
  vec($to, fileno($terminal), 1) = 1 if $pending ne "";
  next if select($from, $to, undef, undef) < 1;
  if (vec($from, 2, 1)) { close $server; undef $server; close STDERR; }
  $reads = sysread(STDIN, $pending, 4096) if vec($from, 0, 1);
  if ($pending ne "") {
    my $count = syswrite($terminal, $pending);
    $pending = substr($pending, $count) if $count;
  }
  next if !vec($from, fileno($terminal), 1);
  my $count = sysread($terminal, my $text, 65536);
  next if !defined $count && ($!{EAGAIN} || $!{EINTR});
  last if !$count;
  $text = $return . $text;
  $return = $text =~ s/\\r+\\z// ? "\\r" : "";
  $text =~ s/\\r+\\n/\\n/g;
  for (my $at = 0; $at < length $text;) {
    my $count = syswrite(STDOUT, $text, length($text) - $at, $at) or last;
    $at += $count;
  }
}
`

/** Servers that share a uid must not open each other's terminals, so theirs are in file systems of their own. */
const OWN_TERMINALS = [
  ...["unshare", "--user", "--map-current-user", "--keep-caps", "--mount", "--", "/bin/sh", "-c"],
  'mount -n -i -t devpts -o newinstance,ptmxmode=0666,mode=0600 muster /dev/pts && exec "$@"',
  "muster-terminal"
] as const

const holder = (level: ProcessIsolation, group: string): readonly [string, ...ReadonlyArray<string>] => {
  const program = ["perl", "-e", HOLDER, "--", group] as const
  return level === "namespaces" ? [...OWN_TERMINALS, ...program] : program
}

/** Waits for the first line of the holder, which is the number of a descriptor, or why there is no terminal. */
const descriptorOf = ({ process }: Child) =>
  Effect.callback<string, LaunchFailed>((resume) => {
    let text = ""
    const pipe = process.stderr?.setEncoding("utf8")
    pipe?.on("data", (more: string) => {
      text += more
      if (/^\d+\n$/.test(text)) resume(Effect.succeed(text.trim()))
    })
    for (const end of ["end", "error"]) {
      pipe?.on(end, () =>
        resume(
          new LaunchFailed({
            message: `the server needs a terminal, and none can be made: ${text.trim() || "perl has failed"}`,
            next: "install perl-base and mount /dev/pts on the node"
          })
        )
      )
    }
  })

/**
 * Starts the holder of a terminal; returns the descriptor of the terminal for the server, open for the scope. `input`
 * and `output`: of the console. `group`: the `cgroup.procs` that the holder joins.
 */
export const startTerminal = Effect.fnUntraced(function* (options: {
  readonly input: number | "pipe"
  readonly output: number | "pipe"
  readonly group: string | undefined
  readonly level: ProcessIsolation
  readonly user: RunUser | undefined
}) {
  const { group = "", input, level, output, user } = options
  const child = yield* Effect.acquireRelease(
    spawnChild(holder(level, group), { stdio: [input, output, "pipe"] }),
    ({ process }) => Effect.sync(() => process.stderr?.destroy())
  )
  const path = `/proc/${child.pid}/fd/${yield* descriptorOf(child)}`
  // Otherwise the terminal would become that of this service.
  const terminal = yield* openFile(path, constants.O_RDWR | constants.O_NOCTTY)
  if (user !== undefined) yield* io("set the owner of the terminal", () => terminal.chown(user.uid, user.gid))
  yield* io("close the terminal to others", () => terminal.chmod(0o600))
  return { terminal: terminal.fd, holder: child }
})

/** Returns the command of a session leader whose input is a terminal, which becomes that of its session when opened. */
export const onTerminal = (argv: ReadonlyArray<string>) =>
  ["/bin/sh", "-c", ': < /proc/self/fd/0 && exec "$@"', "muster-terminal", ...argv] as const
