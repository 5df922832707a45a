/** Large files of a server on the embedded node and on a remote one. */
import { spawnSync } from "node:child_process"
import { createHash } from "node:crypto"
import { globSync, readFileSync } from "node:fs"
import { get, type IncomingMessage, request } from "node:http"
import { join } from "node:path"
import { assert, describe, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { eventually } from "../../support/eventually.ts"
import { Muster } from "../../support/Muster.ts"
import { expectStatus } from "../../support/servers.ts"
import { Far, places, scene } from "./support/files.ts"
import { options, service } from "./support/http.ts"
import { keyed } from "./support/keyed.ts"

const SIZE = 2 ** 29
const MOST_MEMORY = 80 * 2 ** 20

const rssOf = (pid: number | undefined) =>
  Number(/^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) * 1024

/** Makes a file of random bytes in the folder of a server. */
const large = Effect.fnUntraced(function* (place: (typeof places)[number]) {
  const made = yield* scene(place)
  const node = place === "remote" ? yield* Far : made.api
  assert.strictEqual((yield* made.files.put("/large", "")).status, 201)
  const [path = ""] = globSync(join(node.dataDir, "**/large")).filter((found) => found.includes(made.id))
  const { stdout } = spawnSync(
    "sh",
    ["-c", 'head -c "$0" /dev/urandom > "$1" && sha256sum < "$1"', String(SIZE), path],
    {
      encoding: "utf8"
    }
  )
  return { ...made, sha256: stdout.split(" ")[0], pids: [made.api.process.pid, node.process.pid] }
})

/** Begins a download that reads nothing yet. */
const download = (url: string, key: string) =>
  Effect.callback<IncomingMessage>((resume) => {
    const sent = get(url, { headers: { authorization: `Bearer ${key}` }, agent: false }, (response) => {
      response.pause()
      resume(Effect.succeed(response.on("error", () => {})))
    }).on("error", () => {})
    return Effect.sync(() => sent.destroy())
  })

layer(Layer.provideMerge(Far.layer, service()), options)("large files of servers", (it) => {
  describe("spec 10.3: transfers", () => {
    it.effect.each(places)(
      "%s: 512 MiB are sent to a peer that pauses, with little memory",
      (place) =>
        Effect.gen(function* () {
          const { api, files, pids, sha256 } = yield* large(place)
          const before = pids.map(rssOf)
          const hash = createHash("sha256")
          const response = yield* download(`${api.url}${files.base}/content?path=/large`, api.key)
          let bytes = 0
          let most = 0
          yield* Effect.callback<void>((resume) => {
            response.on("data", (chunk: Buffer) => {
              bytes += chunk.length
              hash.update(chunk)
              if (bytes % (64 * 2 ** 20) < chunk.length) {
                response.pause()
                const grown = pids.map((pid, index) => rssOf(pid) - (before[index] ?? 0))
                most = Math.max(most, ...grown)
                setTimeout(() => response.resume(), 50)
              }
            })
            response.on("end", () => resume(Effect.void))
            response.resume()
          })
          assert.deepStrictEqual([bytes, hash.digest("hex")], [SIZE, sha256])
          assert.isBelow(most, MOST_MEMORY)
        }),
      120_000
    )

    it.effect.each(places)(
      "%s: 512 MiB are received with little memory",
      (place) =>
        Effect.gen(function* () {
          const { api, files, pids } = yield* large(place)
          const before = pids.map(rssOf)
          let most = 0
          const status = yield* Effect.callback<number | undefined>((resume) => {
            const sent = request(
              `${api.url}${files.base}/content?path=/copy`,
              {
                method: "PUT",
                headers: { authorization: `Bearer ${api.key}`, "content-length": SIZE },
                agent: false
              },
              (response) => resume(Effect.succeed(response.statusCode))
            )
            const piece = Buffer.alloc(2 ** 20)
            let rest = SIZE / piece.length
            const write = () => {
              while (rest > 0) {
                rest -= 1
                if (rest % 64 === 0)
                  most = Math.max(most, ...pids.map((pid, index) => rssOf(pid) - (before[index] ?? 0)))
                if (!sent.write(piece)) return void sent.once("drain", write)
              }
              sent.end()
            }
            write()
          })
          assert.strictEqual(status, 201)
          assert.isBelow(most, MOST_MEMORY)
          yield* files.post("delete", { paths: ["/copy"] })
        }),
      240_000
    )

    it.effect("a download ends within a second after its key is revoked, also one that is not read", () =>
      Effect.gen(function* () {
        const { api, files } = yield* large("embedded")
        const { id, key } = yield* keyed("Operator", { allow: ["browse"] })
        const response = yield* download(`${api.url}${files.base}/content?path=/large`, key)
        const begun = Date.now()
        yield* expectStatus(api, 200, "DELETE", `/api/keys/${id}`)
        yield* eventually(
          Effect.sync(() => {
            response.resume()
            return response.destroyed
          }),
          (isCut) => isCut
        )
        assert.isBelow(Date.now() - begun, 10_000)
        assert.isFalse(response.complete)
        assert.strictEqual((yield* (yield* Muster).request("GET", "/readyz")).status, 200)
      })
    )
  })
})
