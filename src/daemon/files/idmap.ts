/**
 * Mounts that show the files of one owner as those of another (idmapped mounts, mount_setattr(2)). They need Linux 5.12
 * for files and folders, 5.19 for layers of an overlay, and support by the file system. The program is in perl, which
 * Debian always has: `mount` of util-linux supports them since 2.39 only, and Node makes no system calls.
 */
import { arch } from "node:process"
import { IoError } from "../disk/fsio.ts"
import type { RunUser } from "../runtime/Runtime.ts"

/** The owner of files, and the user that a mount shows as their owner. */
export interface Shown {
  readonly owner: RunUser
  readonly as: RunUser
}

/** Undefined: the files have the owner already. */
export const shownAs = (owner: RunUser, as: RunUser): Shown | undefined =>
  owner.uid === as.uid && owner.gid === as.gid ? undefined : { owner, as }

/** Attributes of a mount (mount_setattr(2)). */
export const READ_ONLY = 1
export const NOSUID_NODEV = 2 + 4

/** The number of the system call umount2 by processor; numbers above 423 are the same on all. */
const umount2: Partial<Record<NodeJS.Architecture, number>> = {
  x64: 166,
  arm64: 39,
  loong64: 39,
  riscv64: 39
}

/**
 * Makes the mounts of a tree in order. Argument: the number of umount2. Each input line is a mount, with its words in
 * hexadecimal: attributes, target, name of an overlay or empty, upper and work folder of an overlay, then per source
 * its number, the map of its uids and that of its gids, both empty without a map. Open files are referred to by number.
 * The program writes a line after each mount, and ends at the first failure.
 *
 * - A map is that of a user namespace, which a child that starts in it (clone3(2)) keeps alive.
 * - Mapped copies of lower layers are detached where the kernel supports that (6.15); on older kernels they are mounted
 * at the target until the overlay uses them. A child keeps them open past the end of this program, because the kernel
 * is slow to remove them.
 */
const PROGRAM = `
use strict;
my ($umount) = @ARGV;
my ($none, $type, %users) = ("", "overlay");
sub done {
  my ($what, $result) = @_;
  return $result if defined $result && $result != -1;
  print STDERR "$what: $!\\n";
  exit 1;
}
sub users {
  my ($uids, $gids) = @_;
  pipe(my $wait, my $end) or done("pipe");
  my $how = pack("Q8", 0x10000000, 0, 0, 0, 17, 0, 0, 0);
  my $child = done("user namespace", syscall(435, $how, 64));
  if ($child == 0) {
    close $_ for $end, *STDIN, *STDOUT, *STDERR;
    sysread($wait, my $over, 1);
    exit 0;
  }
  for (["uid_map", $uids], ["gid_map", $gids]) {
    open(my $file, ">", "/proc/$child/$$_[0]") or done($$_[0]);
    done($$_[0], syswrite($file, $$_[1]));
  }
  open(my $users, "<", "/proc/$child/ns/user") or done("user namespace");
  return [$users, $end];
}
sub clone { done("clone the mount", syscall(428, $_[0] + 0, $none, 0x81001)) }
sub set {
  my ($tree, $attributes, $uids, $gids) = @_;
  my ($flags, $users) = ($attributes, 0);
  if ($uids ne "") {
    $flags |= 0x100000;
    $users = fileno(($users{"$uids/$gids"} //= users($uids, $gids))->[0]);
  }
  my $with = pack("Q4", $flags, 0, 1 << 18, $users);
  done("map the owner", syscall(442, $tree, $none, 0x1000, $with, 32));
}
sub put { done("mount", syscall(429, $_[0], $none, -100, $_[1], 4)) }
sub overlay {
  my $context = done("overlay", syscall(430, $type, 1));
  for (@_, ["index", "off"], ["metacopy", "off"], ["redirect_dir", "nofollow"], ["xino", "off"]) {
    my ($key, $value) = ($$_[0], "$$_[1]");
    done("overlay, $key", syscall(431, $context, 1, $key, $value, 0));
  }
  return $context if syscall(431, $context, 6, 0, 0, 0) != -1;
  my $error = $! + 0;
  drop($context);
  $! = $error;
  return undef;
}
sub drop { done("close", syscall(436, $_[0], $_[0], 0)) }
chdir("/proc/self/fd") or done("/proc/self/fd");
while (my $line = <STDIN>) {
  chomp $line;
  my ($attributes, $target, $name, $upper, $work, @sources) = map { pack("H*", $_) } split(/ /, $line, -1);
  $attributes += 0;
  my (@trees, @mapped);
  while (my ($source, $uids, $gids) = splice(@sources, 0, 3)) {
    my $tree = $name eq "" || $uids ne "" ? clone($source) : $source;
    set($tree, $attributes, $uids, $gids) if $tree ne $source;
    push @trees, $tree;
    push @mapped, $tree if $uids ne "";
  }
  if ($name eq "") {
    put($trees[0], $target);
  } else {
    my @layers = (["source", $name], ["lowerdir", join(":", @trees)], ["upperdir", $upper], ["workdir", $work]);
    my $context = overlay(@layers);
    if (!defined $context && @mapped > 0) {
      put($_, $target) for @mapped;
      $context = overlay(@layers);
      done("overlay", defined $context ? 0 : undef);
      done("unmount", syscall($umount + 0, $target, 2)) for @mapped;
    }
    done("overlay", $context);
    my $mount = done("overlay", syscall(432, $context, 1, $attributes));
    put($mount, $target);
    drop($_) for $mount, $context;
  }
  done("answer", syswrite(STDOUT, "\\n"));
}
exit 0 if fork();
`

/** Root is mapped to itself, so that the daemon can make files there and change their owner. */
const mapOf = (from: number, to: number): string =>
  from === 0 || to === 0 ? `${from} ${to} 1` : `${from} ${to} 1\n0 0 1`

const mapsOf = (shown: Shown | undefined): ReadonlyArray<string> =>
  shown === undefined
    ? ["", ""]
    : [mapOf(shown.owner.uid, shown.as.uid), mapOf(shown.owner.gid, shown.as.gid)]

/** A mount; open files are given by their number in the program (see `mountProgram`). */
export interface ProgramStep {
  readonly target: string
  /** {@link READ_ONLY}, {@link NOSUID_NODEV} */
  readonly attributes: number
  /** Undefined: the source itself is mounted. */
  readonly overlay?: { readonly name: string; readonly upper: number; readonly work: number }
  /** `shown` undefined: no map. */
  readonly sources: ReadonlyArray<{ readonly source: number; readonly shown: Shown | undefined }>
}

/** Returns the command that makes mounts. It reads them as lines and acknowledges each with an empty line. */
export const mountProgram = (): IoError | readonly [string, ...ReadonlyArray<string>] => {
  const number = umount2[arch]
  if (number === undefined) {
    return new IoError({ code: "ENOSYS", message: `owners cannot be mapped on ${arch}` })
  }
  return ["perl", "-e", PROGRAM, "--", String(number)]
}

/** Returns the program's input line of a mount. */
export const programLine = ({ attributes, overlay, sources, target }: ProgramStep): string => {
  const words = [
    ...[attributes, target, overlay?.name ?? "", overlay?.upper ?? "", overlay?.work ?? ""],
    ...sources.flatMap(({ shown, source }) => [source, ...mapsOf(shown)])
  ]
  return `${words.map((word) => Buffer.from(String(word)).toString("hex")).join(" ")}\n`
}
