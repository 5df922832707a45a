/**
 * Mounts that show the files of one owner as those of another (idmapped mounts, mount_setattr(2)): Linux 5.12 for
 * files and folders, 5.19 for layers of an overlay, and a file system that takes part. By perl, which Debian always
 * has: `mount` of util-linux knows them only since 2.39, and Node calls no system calls.
 */
import { arch } from "node:process"
import { IoError } from "../disk/fsio.ts"
import type { RunUser } from "../runtime/Runtime.ts"

/** The owner of files, and the user that a mount shows as their owner. */
export interface Shown {
  readonly owner: RunUser
  readonly as: RunUser
}

/** Undefined where the files have the owner already. */
export const shownAs = (owner: RunUser, as: RunUser): Shown | undefined =>
  owner.uid === as.uid && owner.gid === as.gid ? undefined : { owner, as }

/** Options of a mount (mount_setattr(2)). */
export const READ_ONLY = 1
export const NOSUID_NODEV = 2 + 4

/**
 * System calls whose numbers differ between processors: unshare, umount2. Those after 423 are the same on all.
 */
const calls: Partial<Record<NodeJS.Architecture, readonly [number, number]>> = {
  x64: [272, 166],
  arm64: [97, 39],
  loong64: [97, 39],
  riscv64: [97, 39]
}

/**
 * Arguments: numbers of unshare and umount2, options, target, name of an overlay or nothing, then for each source the
 * map of its uids and that of its gids, both empty where it is taken as it is. Open from 3 on: the sources; then the
 * upper and the work folder of an overlay.
 *
 * - A map is that of a user namespace, which a child makes and holds until it is in use.
 * - Mapped copies of lower layers belong to no folder where the kernel takes them so (6.15); before, they are mounted
 *   at the target until the overlay has them. The children hold them, too, so that the kernel takes them down after
 *   the end of this program, which takes a while.
 */
const PROGRAM = `
use strict;
my ($unshare, $umount, $attributes, $target, $name, @maps) = @ARGV;
my ($none, $type, $first) = ("", "overlay", 3);
my ($upper, $work) = ($first + @maps / 2, $first + @maps / 2 + 1);
my (@trees, @mapped, %users);
sub done {
  my ($what, $result) = @_;
  return $result if defined $result && $result != -1;
  print STDERR "$what: $!\\n";
  exit 1;
}
sub users {
  my ($uids, $gids) = @_;
  pipe(my $ready, my $tell) && pipe(my $wait, my $end) or done("pipe");
  my $child = done("fork", fork());
  if ($child == 0) {
    close $end;
    done("user namespace", syscall($unshare + 0, 0x10000000));
    close STDOUT;
    close STDERR;
    syswrite($tell, "1");
    sysread($wait, my $over, 1);
    exit 0;
  }
  close $tell;
  sysread($ready, my $said, 1) or exit 1;
  for (["uid_map", $uids], ["gid_map", $gids]) {
    open(my $file, ">", "/proc/$child/$$_[0]") or done($$_[0]);
    done($$_[0], syswrite($file, $$_[1]));
  }
  open(my $users, "<", "/proc/$child/ns/user") or done("user namespace");
  return [$users, $end];
}
sub clone { done("clone the mount", syscall(428, $first + $_[0], $none, 0x81001)) }
sub show {
  my ($tree, $uids, $gids) = @_;
  my $users = $users{"$uids/$gids"} //= users($uids, $gids);
  my $with = pack("Q4", $attributes | 0x100000, 0, 1 << 18, fileno($$users[0]));
  done("map the owner", syscall(442, $tree, $none, 0x1000, $with, 32));
}
sub put { done("mount", syscall(429, $_[0], $none, -100, $target, 4)) }
sub overlay {
  my $context = done("overlay", syscall(430, $type, 1));
  my @options = (["source", $name], ["lowerdir", join(":", @trees)], ["upperdir", $upper], ["workdir", $work],
    ["index", "off"], ["metacopy", "off"], ["redirect_dir", "nofollow"], ["xino", "off"]);
  for (@options) {
    my ($key, $value) = ($$_[0], "$$_[1]");
    done("overlay, $key", syscall(431, $context, 1, $key, $value, 0));
  }
  return syscall(431, $context, 6, 0, 0, 0) == -1 ? undef : $context;
}
if ($name eq "") {
  $users{"$maps[0]/$maps[1]"} = users(@maps);
  my $tree = clone(0);
  show($tree, @maps);
  put($tree);
  exit 0;
}
for my $at (0 .. @maps / 2 - 1) {
  my $tree = $maps[2 * $at] eq "" ? $first + $at : clone($at);
  push @trees, $tree;
  push @mapped, [$tree, @maps[2 * $at, 2 * $at + 1]] if $maps[2 * $at] ne "";
}
show(@$_) for @mapped;
chdir("/proc/self/fd") or done("/proc/self/fd");
my $context = overlay();
if (!defined $context) {
  put($$_[0]) for @mapped;
  $context = done("overlay", overlay());
  done("unmount", syscall($umount + 0, $target, 2)) for @mapped;
}
put(done("overlay", syscall(432, $context, 1, $attributes + 0)));
`

/** Root stays root, so that the daemon can make files there and give them away. */
const mapOf = (from: number, to: number): string =>
  from === 0 || to === 0 ? `${from} ${to} 1` : `${from} ${to} 1\n0 0 1`

const mapsOf = (shown: Shown | undefined): ReadonlyArray<string> =>
  shown === undefined
    ? ["", ""]
    : [mapOf(shown.owner.uid, shown.as.uid), mapOf(shown.owner.gid, shown.as.gid)]

export interface MappedMount {
  readonly target: string
  /** {@link READ_ONLY}, {@link NOSUID_NODEV} */
  readonly attributes: number
  /** Of an overlay; empty: the source itself is mounted. */
  readonly name: string
  /** Of the sources, in order; undefined: as they are. */
  readonly shown: ReadonlyArray<Shown | undefined>
}

/** The command that makes the mount; its files are handed over as `run` does. */
export const mappedMount = ({
  attributes,
  name,
  shown,
  target
}: MappedMount): IoError | readonly [string, ...ReadonlyArray<string>] => {
  const numbers = calls[arch]
  if (numbers === undefined) {
    return new IoError({ code: "ENOSYS", message: `owners cannot be mapped on ${arch}` })
  }
  const words = [...numbers, attributes].map(String)
  return ["perl", "-e", PROGRAM, "--", ...words, target, name, ...shown.flatMap(mapsOf)]
}
