import { existsSync, readdirSync, readFileSync, truncateSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Stream } from "effect"
import type { ServerId } from "../../../src/contract/domain/Id.ts"
import { serverId } from "../../../src/contract/domain/Id.ts"
import { idBytes } from "../../../src/contract/domain/idBytes.ts"
import { archive, member } from "../../support/tar.ts"
import { bytesOf, filesOf, places, put, refusalOf } from "../access/scene.ts"
import { type Harness, until } from "../support.ts"

type Daemon = Harness["daemon"]

/** Work of the node on the files of a server, and whether it removes what the server had. */
const works: Readonly<
  Record<
    string,
    {
      readonly isNew: boolean
      readonly run: (daemon: Daemon, id: ServerId) => Effect.Effect<unknown, unknown>
    }
  >
> = {
  reset: { isNew: true, run: (daemon, id) => daemon.reset(id) },
  reinstallation: { isNew: false, run: (daemon, id) => daemon.reinstall(id) },
  deletion: { isNew: false, run: (daemon, id) => daemon.remove(id) },
  migration: { isNew: false, run: (daemon, id) => daemon.hold(id, true) }
}

const writing = { read: true, write: true, create: true, exclusive: false, truncate: false }

for (const [name, place] of Object.entries(places)) {
  describe(`spec 10.3: accesses that run when work on the files begins: ${name}`, () => {
    for (const [what, { isNew, run }] of Object.entries(works)) {
      it.live(`${what}: each ends with an error, and none writes to the files afterwards`, () =>
        Effect.gen(function* () {
          const scene = yield* filesOf(place, { save: true })
          const { files, folder, id, node, write } = scene
          // More than the buffers of a connection hold.
          put(folder, "big", "")
          truncateSync(join(folder, "big"), 64 * 1024 * 1024)
          const late = yield* Deferred.make<void>()
          const then = (rest: Uint8Array) => Stream.fromEffect(Effect.as(Deferred.await(late), rest))
          const tar = archive(
            member({ name: "./first", content: "first" }),
            member({ name: "./second", content: "second" })
          )
          const operation_id = serverId(idBytes(16))
          const task = { kind: "unpack", to: "/unpacked", overwrite: "replace" } as const
          const upload = { upload_id: "u".repeat(32), owner: "key_1" }
          yield* files.uploads.begin(id, { ...upload, path: "/uploaded", size: 8, metadata: "" })
          const read = yield* files.read(id, { path: "/big" })
          const packed = yield* files.archive(id, { paths: ["/"], format: "tar" })
          const session = yield* files.session(id)
          const opened = yield* session.open("/server.jar", writing)
          const running = yield* Effect.forEach(
            [
              files.write(id, { path: "/slow" }, Stream.concat(bytesOf("half"), then(Buffer.from("late")))),
              files.receive(
                id,
                { operation_id, task },
                Stream.concat(Stream.make(tar.subarray(0, 1000)), then(tar.subarray(1000)))
              ),
              files.uploads.append(
                id,
                { ...upload, offset: 0 },
                Stream.concat(bytesOf("half"), then(Buffer.from("late")))
              )
            ],
            (access): Effect.Effect<Fiber.Fiber<string>> => Effect.forkChild(refusalOf(access))
          )
          yield* until(
            "the accesses have begun",
            () => readdirSync(folder).filter((one) => one.startsWith(".muster-")).length === 3
          )
          yield* run(node.daemon, id)
          const outcomes = yield* Effect.forEach(running, Fiber.join)
          yield* Deferred.succeed(late, undefined)
          // A stream or a session from a remote node ends without a reason.
          const ends = [
            yield* refusalOf(Stream.runDrain(read)),
            yield* refusalOf(Stream.runDrain(packed)),
            yield* refusalOf(session.ended),
            yield* refusalOf(opened.write(0, Buffer.from("late")))
          ]
          for (const end of ends) assert.match(end, place.far ? /^NodeUnreachable/ : /^409 \S/)
          for (const outcome of outcomes) assert.match(outcome, /^409 the access was interrupted/)
          if (what === "deletion") return assert.isFalse(existsSync(folder))
          if (what !== "migration")
            yield* until(
              "the server is offline",
              Effect.map(refusalOf(scene.names("/")), (outcome) => outcome === "no refusal")
            )
          else {
            assert.match(yield* refusalOf(write("/after", "after")), /^409 the server is migrating/)
            yield* node.daemon.hold(id, false)
          }
          assert.deepStrictEqual(yield* scene.names("/"), [
            ...(isNew ? [] : ["big"]),
            "plugins",
            "server.jar",
            "world"
          ])
          assert.strictEqual(yield* scene.read("/server.jar"), "jar\n")
          if (isNew)
            assert.deepStrictEqual(
              readdirSync(folder).filter((one) => one.startsWith(".muster-")),
              []
            )
          assert.strictEqual(readFileSync(join(folder, "server.jar"), "utf8"), "jar\n")
        }).pipe(Effect.scoped)
      )
    }
  })
}
