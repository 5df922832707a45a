/** Socket activation: a parent holds the listening socket as systemd does, and passes it to each service in turn. */
import { readFileSync } from "node:fs"
import { get } from "node:http"
import { join, resolve } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { startChild } from "../support/child.ts"
import { alone } from "../support/nodes.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"
import { databaseEnv } from "../support/testDatabase.ts"

const root = resolve(import.meta.dirname, "../..")

/**
 * Starts a service with the socket as descriptor 3, and another after each that ends in order or by SIGKILL. SIGHUP ends
 * one in order, SIGUSR1 by SIGKILL.
 */
const holder = `
use IO::Socket::INET; use POSIX ();
$| = 1; $^F = 10;
my $held = IO::Socket::INET->new(Listen => 512, LocalAddr => "127.0.0.1:0") or die $!;
print "holds ", $held->sockport, "\\n";
do {
  my $pid = fork();
  if ($pid == 0) {
    POSIX::dup2(fileno($held), 3) if fileno($held) != 3;
    $ENV{LISTEN_PID} = $$;
    exec @ARGV;
  }
  print "service $pid\\n";
  $SIG{HUP} = sub { kill("TERM", $pid) };
  $SIG{USR1} = sub { kill("KILL", $pid) };
  $SIG{TERM} = sub { kill("TERM", $pid); POSIX::_exit(0) };
  1 while waitpid($pid, 0) == -1 && $!{EINTR};
} while $? == 0 || ($? & 127) == 9;
exit 1;
`

const start = Effect.fnUntraced(function* (count: string) {
  const dataDir = join(yield* temporaryFolder, "data")
  return yield* startChild(
    ["perl", "-e", holder, "--", process.execPath, join(root, "dist/main.js"), "serve"],
    {
      cwd: root,
      env: {
        ...alone,
        ...(yield* databaseEnv(dataDir)),
        MUSTER_DATA_DIR: dataDir,
        MUSTER_PORT: "1",
        LISTEN_FDS: count,
        LISTEN_FDNAMES: "muster.socket"
      }
    }
  )
})

/** The status of a response on a connection of its own, or why there is none. */
const asked = (port: string, path: string) =>
  Effect.callback<number | string>((resume) => {
    get({ host: "127.0.0.1", port, path, agent: false }, (response) => {
      response.resume().once("close", () => resume(Effect.succeed(response.statusCode ?? 0)))
    }).once("error", (error) => resume(Effect.succeed(error.message)))
  })

describe("docs/deployment.md, Install with systemd: address and port", () => {
  it.live("a service uses the socket that it gets, and no connection is refused while it restarts", () =>
    Effect.gen(function* () {
      const parent = yield* start("1")
      const [, port = ""] = yield* parent.prints(/holds (\d+)/)
      const address = `http://127.0.0.1:${port}`
      const first = yield* parent.prints(
        new RegExp(`service (\\d+)[\\s\\S]*listens on ${address}[\\s\\S]*All routes`)
      )
      assert.include(parent.output(), "in place of the settings of host and port")
      const { pid = "" } = /service (?<pid>\d+)/.exec(first[0])?.groups ?? {}
      // Close-on-exec: no program that the service starts gets the socket.
      const flags = /^flags:\s*(\d+)$/m.exec(readFileSync(`/proc/${pid}/fdinfo/3`, "latin1"))?.[1] ?? "0"
      assert.strictEqual(Number.parseInt(flags, 8) & 0o2000000, 0o2000000)
      assert.strictEqual(yield* asked(port, "/api/servers"), 401)

      const seen = new Set<number | string>()
      const clients = yield* Effect.forkScoped(
        Effect.forever(Effect.map(asked(port, "/healthz"), (status) => seen.add(status)))
      )
      yield* parent.signal("SIGHUP")
      yield* parent.prints(/the service has ended[\s\S]*service \d+[\s\S]*All routes/)
      assert.strictEqual(yield* asked(port, "/healthz"), 200)
      yield* Fiber.interrupt(clients)
      assert.deepStrictEqual([...seen], [200])
    }).pipe(Effect.scoped)
  )

  it.live(
    "after kill -9 the next service gets the socket: no connection is refused, and all that waited are answered",
    () =>
      Effect.gen(function* () {
        const parent = yield* start("1")
        const [, port = ""] = yield* parent.prints(/holds (\d+)[\s\S]*All routes/)
        assert.strictEqual(yield* asked(port, "/healthz"), 200)
        yield* parent.signal("SIGUSR1")
        // Connections that the killed service had accepted are reset; those after its end wait for the next service.
        yield* parent.prints(/service \d+[\s\S]*service \d+\n/)
        const waiting = Array.from({ length: 20 }, () => asked(port, "/healthz"))
        const answered = yield* Effect.all(waiting, { concurrency: "unbounded" })
        assert.deepStrictEqual([...new Set(answered)], [200])
        assert.strictEqual(yield* asked(port, "/api/servers"), 401)
      }).pipe(Effect.scoped)
  )

  it.live("two sockets are an error that says what to do", () =>
    Effect.gen(function* () {
      const parent = yield* start("2")
      assert.strictEqual(yield* parent.exited(), 1)
      assert.include(parent.output(), "systemd passes 2 sockets: give the socket unit one ListenStream=")
    }).pipe(Effect.scoped)
  )
})
