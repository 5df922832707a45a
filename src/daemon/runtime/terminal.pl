# Holds a pseudo-terminal until all other processes have closed it: copies between the terminal and the console.
#
# - Descriptor 0 is the input, 1 the output. The program writes the number of its descriptor of the terminal to 2, and
#   keeps the terminal open until the other side closes 2: then the server has it, or the service has ended.
# - The terminal does not echo, since the console would have each line of input, and output cannot be suspended by ^S.
# - A server that does not read blocks its input only. Without a reader, output is discarded.
# - "\r\n" becomes "\n", also if the program sets the terminal itself.
#
# Arguments: the `cgroup.procs` to join or an empty word; rows and columns of the terminal.
use strict;
$SIG{$_} = "IGNORE" for qw(HUP INT QUIT TERM USR1 USR2 PIPE);
my ($group, $rows, $columns) = @ARGV;
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
my $size = pack("S4", $rows, $columns, 0, 0);
done("size", ioctl($terminal, 0x5414, $size));
my $path = "/dev/pts/" . unpack("i", $number);
done($path, sysopen(my $server, $path, 0402));
syswrite(STDERR, fileno($server) . "\n");
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
  $return = $text =~ s/\r+\z// ? "\r" : "";
  $text =~ s/\r+\n/\n/g;
  for (my $at = 0; $at < length $text;) {
    my $count = syswrite(STDOUT, $text, length($text) - $at, $at) or last;
    $at += $count;
  }
}
