# The helper: makes mounts and runs programs for the service, without a fork of the service.
#
# Serves requests on standard input until its end. Frames are lists of words, each with its length before it: a request
# is an id, a command and its words; an answer is the id, an exit code, the output and the errors.
#
# - `run`: a program of the list, without a shell, and its arguments.
# - `mount`: attributes, target, name of an overlay or empty, upper and work folder of an overlay, then per source its
#   number, the map of its uids and that of its gids, both empty without a map. Open files are given by their number in
#   the service.
# - `unmount`: flags of umount2(2), then paths.
# - `kill`: a uid, all of whose processes are killed at once: a fork cannot escape. It may be neither root nor the uid of
#   the service. The killer has the uid as its effective one only: as its real one, too, its victims could stop it.
# - `mounts`: a path; the output is the lines of the mount table at and below it, which is read when it has changed.
# - `stop`: the id of a `run`, whose program is killed.
#
# Each command but the last two is done by a process of its own, which ends with the helper, and so does its program. At
# the end of its input the helper completes its requests, unless the service was killed: the next service does the work
# again, and what is left of it must not meet the processes and files of that service.
#
# - A map is that of a user namespace, which a child that starts in it (clone3(2)) keeps alive.
# - Mapped copies of lower layers are detached where the kernel supports that (6.15); on older kernels they are mounted
#   at the target until the overlay uses them. The kernel is slow to remove them, after the answer.
#
# Arguments: the pid of the service, the numbers of the system calls umount2 and prctl, the bytes of the longest request,
# then the programs that `run` may run.
use strict;
my ($service, $umount, $prctl, $longest, @programs) = @ARGV;
my %programs = map { $_ => 1 } @programs;
# Bytes of the output and of the errors of a program that are kept: the end of it.
my $kept = 4096;
# Bytes of an answer that one write to a socket never splits.
my $unsplit = 32_768;
my ($own, $none, $type, $stopped, $table, @mounts, %users, %workers) = ($$, "", "overlay", 0);
$_ += 0 for $umount, $prctl;
$SIG{$_} = "IGNORE" for qw(HUP INT);
$SIG{TERM} = sub { $stopped = 1 };
sub bytes {
  my ($count, $text) = ($_[0], "");
  while (length $text < $count) {
    my $read = sysread(STDIN, $text, $count - length $text, length $text);
    next if !defined $read && $!{EINTR};
    next if $read;
    if (serves()) { 1 while waitpid(-1, 0) > 0 }
    exit 0;
  }
  return $text;
}
sub serves {
  open(my $words, "<", "/proc/$service/cmdline") or return 0;
  return sysread($words, my $first, 1);
}
sub tie_to {
  syscall($prctl, 1, 9, 0, 0, 0);
  exit 1 if getppid() != $_[0];
}
sub answer { syswrite(STDOUT, pack("N/a*", pack("(N/a*)*", @_))) }
sub done {
  my ($what, $result) = @_;
  return $result if defined $result && $result != -1;
  die "$what: $!\n";
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
sub clone { done("clone the mount", syscall(428, -100, "$_[0]", 0x80001)) }
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
sub mount {
  my ($attributes, $target, $name, $upper, $work, @sources) = @_;
  $attributes += 0;
  chdir("/proc/$service/fd") or done("/proc/$service/fd");
  my (@trees, @layers, @mapped);
  while (my ($source, $uids, $gids) = splice(@sources, 0, 3)) {
    if ($name ne "" && $uids eq "") {
      push @layers, $source;
      next;
    }
    my $tree = clone($source);
    set($tree, $attributes, $uids, $gids);
    push @trees, $tree;
    push @layers, "/proc/self/fd/$tree";
    push @mapped, $tree if $uids ne "";
  }
  if ($name eq "") {
    put($trees[0], $target);
    return drop($trees[0]);
  }
  my @options = (["source", $name], ["lowerdir", join(":", @layers)], ["upperdir", $upper], ["workdir", $work]);
  my $context = overlay(@options);
  if (!defined $context && @mapped > 0) {
    put($_, $target) for @mapped;
    $context = overlay(@options);
    done("overlay", defined $context ? 0 : undef);
    done("unmount", syscall($umount, $target, 2)) for @mapped;
  }
  done("overlay", $context);
  my $mount = done("overlay", syscall(432, $context, 1, $attributes));
  put($mount, $target);
  drop($_) for $mount, $context;
}
sub unmount {
  my ($flags, @paths) = @_;
  my $failed;
  for (@paths) {
    my $result = syscall($umount, "$_", $flags + 0);
    $failed //= "$_: $!" if $result == -1;
  }
  die "$failed\n" if defined $failed;
}
sub kill_all {
  my ($uid) = @_;
  die "the processes of uid $uid are not killed\n" if $uid !~ /^[1-9][0-9]*\z/ || $uid == $< || $uid == $>;
  # No process has this real uid, which is another one for each victim. A user namespace may lack it.
  ($<, $>) = (0xe0000000 | $uid & 0xfffffff, $uid);
  ($<, $>) = ($uid, $uid) if $< == 0 || $> != $uid;
  die "uid $uid: $!\n" if $< == 0 || $> != $uid;
  tie_to($own);
  kill("KILL", -1);
}
sub tool {
  my @argv = @_;
  $programs{$argv[0]} or die "$argv[0] is not a program of the helper\n";
  pipe(my $out, my $out_end) or done("pipe");
  pipe(my $errors, my $errors_end) or done("pipe");
  my $worker = $$;
  my $program = fork() // done("fork");
  if ($program == 0) {
    tie_to($worker);
    setpgrp(0, 0);
    $SIG{TERM} = "DEFAULT";
    open(STDOUT, ">&", $out_end) && open(STDERR, ">&", $errors_end) && exec { $argv[0] } @argv;
    print STDERR "$argv[0]: $!\n";
    exit 127;
  }
  setpgrp($program, 0);
  $SIG{TERM} = sub { kill("KILL", -$program) };
  kill("KILL", -$program) if $stopped;
  close $_ for $out_end, $errors_end;
  my @texts = ("", "");
  my %open = (0 => $out, 1 => $errors);
  while (%open) {
    my $ready = "";
    vec($ready, fileno($_), 1) = 1 for values %open;
    next if select($ready, undef, undef, undef) < 1;
    for (keys %open) {
      next if !vec($ready, fileno($open{$_}), 1);
      my $read = sysread($open{$_}, $texts[$_], 65536, length $texts[$_]);
      $texts[$_] = substr($texts[$_], -$kept) if length $texts[$_] > $kept;
      delete $open{$_} if defined $read ? $read == 0 : !$!{EINTR};
    }
  }
  while (waitpid($program, 0) == -1 && $!{EINTR}) {}
  return ($? & 127 ? 128 + ($? & 127) : $? >> 8, @texts);
}
sub work {
  my ($command, @words) = @_;
  return tool(@words) if $command eq "run";
  if ($command eq "mount") { mount(@words) }
  elsif ($command eq "unmount") { unmount(@words) }
  elsif ($command eq "kill") { kill_all(@words) }
  else { die "no command $command\n" }
  return (0, "", "");
}
sub look {
  my ($path) = @_;
  my $changed = "";
  if (defined $table) {
    vec($changed, fileno($table), 1) = 1;
    select(undef, undef, $changed, 0);
    sysseek($table, 0, 0);
  } else {
    open($table, "<", "/proc/self/mountinfo") or return (1, "", "mount table: $!\n");
    $changed = "1";
  }
  if ($changed =~ /[^\0]/) {
    my $text = "";
    while (sysread($table, $text, 1 << 20, length $text)) {}
    @mounts = map { my $at = (split / /, $_, 6)[4]; $at =~ s/\\([0-7]{3})/chr oct $1/ge; [$at, $_] } split /\n/, $text;
  }
  my $below = $path eq "/" ? "/" : "$path/";
  my @found = map { $$_[1] } grep { $$_[0] eq $path || substr($$_[0], 0, length $below) eq $below } @mounts;
  my $lines = join("\n", @found);
  return length $lines > $unsplit ? (1, "", "the mounts are too many\n") : (0, $lines, "");
}
while (1) {
  while ((my $ended = waitpid(-1, 1)) > 0) {
    my $id = delete $workers{$ended};
    answer($id, "lost", "", "") if $?;
  }
  my $ready = "";
  vec($ready, 0, 1) = 1;
  next if select($ready, undef, undef, %workers ? 0.25 : undef) < 1;
  my $size = unpack("N", bytes(4));
  exit 1 if $size > $longest;
  my ($id, $command, @words) = unpack("(N/a*)*", bytes($size));
  if ($command eq "mounts") {
    answer($id, look(@words));
    next;
  }
  if ($command eq "stop") {
    for (keys %workers) { kill("TERM", $_) if $workers{$_} eq $words[0] }
    next;
  }
  my $worker = fork();
  if (!defined $worker) {
    answer($id, 1, "", "fork: $!\n");
  } elsif ($worker == 0) {
    tie_to($own);
    open(STDIN, "<", "/dev/null");
    my @result = eval { work($command, @words) };
    answer($id, @result ? @result : (1, "", $@));
    exit 0;
  } else {
    $workers{$worker} = $id;
  }
}
