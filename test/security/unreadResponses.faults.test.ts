import { readFileSync } from "node:fs"
import { connect, type Socket } from "node:net"
import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { assertError, options } from "../controlPlane/http/support/http.ts"
import { keyed } from "../controlPlane/http/support/keyed.ts"
import { blueprintFile, softwareFile } from "../support/definitions.ts"
import { eventually } from "../support/eventually.ts"
import { Muster } from "../support/Muster.ts"
import type { Service } from "../support/Service.ts"
import { expectStatus, running } from "../support/servers.ts"

const CONNECTIONS = 500
const MIB = 1024 * 1024

const loud = `line=$(head -c 8000 /dev/zero | tr '\\0' x)
n=0
while [ $n -lt 1000 ]; do n=$((n + 1)); echo "$n $line"; done
echo ready
exec sleep 1000`

const service = Muster.layer(
  {
    software: { "loud.yml": softwareFile("loud", { files: { "server.sh": loud } }) },
    blueprints: { "loud.yml": blueprintFile("loud", "loud") }
  },
  { MUSTER_EMBEDDED_ALLOCATIONS: "127.0.0.1:26500-26599" }
)

const residentBytes = ({ process: { pid } }: Service) =>
  Number(/VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) * 1024

const target = (id: string) => `/api/servers/${id}/logs?per_page=1000`

/** Opens a connection that sends a request and reads nothing. */
const unread = (api: Service, path: string) =>
  Effect.acquireRelease(
    Effect.callback<Socket>((resume) => {
      const { hostname, port } = new URL(api.url)
      const socket = connect({ host: hostname, port: Number(port) }, () => {
        socket.pause()
        socket.write(`GET ${path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${api.key}\r\n\r\n`)
        resume(Effect.succeed(socket))
      })
      socket.on("error", () => {})
    }),
    (socket) => Effect.sync(() => socket.destroy())
  )

layer(service, options)("SECURITY.md: a key holder cannot exhaust the service's memory", (it) => {
  describe("responses that are not read", () => {
    it.effect("500 of them take less than 100 MiB, and end; other keys get theirs", () =>
      Effect.gen(function* () {
        const admin = yield* Muster
        const id = yield* running(admin, "loud")
        const key = yield* keyed("ReadOnly", { servers: [id] })
        // Also warms up the service: the memory of one response at a time is no growth.
        for (let n = 0; n < 10; n++) {
          const whole = yield* expectStatus(key, 200, "GET", target(id))
          assert.isAbove(whole.text.length, 4 * MIB)
        }
        const before = residentBytes(admin)
        yield* Effect.replicateEffect(unread(key, target(id)), CONNECTIONS, {
          concurrency: 50
        })
        const refused = yield* key.request("GET", target(id))
        assertError(refused, 503, "the API key has too many large responses that are not read yet")
        assert.isAbove(Number(refused.headers.get("retry-after")), 0)
        yield* expectStatus(admin, 200, "GET", target(id))
        const after = residentBytes(admin)
        assert.isBelow(after - before, 100 * MIB)
        yield* eventually(key.request("GET", target(id)), ({ status }) => status === 200, "40 seconds")
      }).pipe(Effect.scoped)
    )
  })
})
