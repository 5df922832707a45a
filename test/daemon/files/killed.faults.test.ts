import fs, {
  lstatSync,
  promises,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  symlinkSync,
  writeFileSync
} from "node:fs"
import type { FileHandle } from "node:fs/promises"
import { syncBuiltinESMExports } from "node:module"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Predicate } from "effect"
import type { InstanceFiles } from "../../../src/daemon/files/InstanceFiles.ts"
import { specOf } from "../support.ts"
import { ownUser, scene, ways, write } from "./scene.ts"

/** The calls that change a disk. */
const changing = [
  "chmod",
  "chown",
  "copyFile",
  "lchown",
  "link",
  "mkdir",
  "open",
  "rename",
  "rm",
  "rmdir",
  "symlink",
  "unlink",
  "utimes",
  "writeFile"
] as const

/** Further calls, which a dead process does not make. */
const reading = ["access", "lstat", "readdir", "readFile", "readlink", "realpath", "stat"] as const

type Call = (...args: ReadonlyArray<unknown>) => unknown

const isHandle = (result: unknown): result is FileHandle => Predicate.hasProperty(result, "createReadStream")

/**
 * A process that dies before its n-th change of the disk: from then on, no call of it returns. Synchronous calls cannot
 * wait; they fail, and so do those that follow.
 */
const dyingBefore = (n: number) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const died = Deferred.makeUnsafe<void>()
      const replaced: Array<readonly [of: object, name: string, call: Call]> = []
      let left = n
      let isDead = false
      const opened = new Set<FileHandle>()
      const change = () => {
        left -= 1
        if (left > 0 || isDead) return
        isDead = true
        Deferred.doneUnsafe(died, Effect.void)
      }
      const keep = (result: unknown) => {
        if (isHandle(result)) opened.add(result)
        return result
      }
      const replace = (of: object, name: string, by: (call: Call) => Call) => {
        const call: Call = Reflect.get(of, name)
        replaced.push([of, name, call])
        const other = by(call)
        Reflect.set(of, name, Object.assign(other, { native: other }))
      }
      const replaceBoth = (name: string, before: () => void) => {
        replace(promises, name, (call) => (...args) => {
          before()
          return isDead ? new Promise(() => {}) : Promise.resolve(call(...args)).then(keep)
        })
        replace(fs, `${name}Sync`, (call) => (...args) => {
          before()
          if (isDead) throw new Error("the process is dead")
          return call(...args)
        })
      }
      for (const name of changing) replaceBoth(name, change)
      for (const name of reading) replaceBoth(name, () => {})
      syncBuiltinESMExports()
      return { died: Deferred.await(died), opened, replaced }
    }),
    ({ opened, replaced }) =>
      Effect.promise(() => {
        for (const [of, name, call] of replaced) Reflect.set(of, name, call)
        syncBuiltinESMExports()
        // The kernel closes the files of a dead process.
        return Promise.allSettled([...opened].map((handle) => handle.close()))
      })
  )

/** Everything below a folder: type, permissions, owner, contents. */
const treeOf = (folder: string, at = ""): ReadonlyArray<string> =>
  readdirSync(join(folder, at))
    .toSorted()
    .flatMap((name) => {
      const path = join(at, name)
      const stats = lstatSync(join(folder, path))
      const line = `${path} ${(stats.mode & 0o7777).toString(8)} ${stats.uid}`
      if (stats.isDirectory()) return [`${line}/`, ...treeOf(folder, path)]
      if (stats.isSymbolicLink()) return [`${line} -> ${readlinkSync(join(folder, path))}`]
      return [`${line} ${readFileSync(join(folder, path), "utf8")}`]
    })

const definition = { volumes: [{ name: "maps", source: "maps", target: "world/maps", mode: "cow" }] } as const
const next = {
  ...definition,
  copy: [{ source: "assets/a", target: "a" }],
  env: { A: "b" }
}

const works = {
  upgrade: "an upgrade",
  renew: "a reinstallation"
} as const

const asRoot = process.getuid?.() === 0

for (const way of ["overlay", "copy, without mounts"] as const) {
  describe(`spec 9.6: daemon killed: ${way}`, () => {
    const prepared = Effect.gen(function* () {
      const made = yield* scene(ways[way])
      write(made.volumes, { "maps/m": "M" })
      write(made.dataDir, { "assets/a": "A" })
      const user = asRoot ? ownUser(45_678) : undefined
      const one = made.server(definition, undefined, user)
      yield* one.make
      const { files, folder, spec } = one
      writeFileSync(join(files, "own"), "own")
      writeFileSync(join(files, "server.properties"), "mine")
      writeFileSync(join(files, "world/level"), "level")
      writeFileSync(join(files, "world/maps/m"), "changed")
      symlinkSync("own", join(files, "link"))
      rmSync(join(files, "world/default"))
      const second = made.base("second", {
        "server.jar": "jar2",
        "world/new": "n",
        "world/default": "d2",
        "server.properties": "theirs",
        "plugins/p": "p"
      })
      const to = specOf({ ...spec, definition: { ...next } })
      const run = (service: InstanceFiles["Service"], work: keyof typeof works) =>
        work === "upgrade"
          ? service.upgrade(folder, second, { from: spec, to }, user)
          : service[work](folder, second, spec, user)
      return { ...made, one, run, user }
    })

    for (const [work, name] of Object.entries(works) as ReadonlyArray<[keyof typeof works, string]>) {
      it.live(
        `${name} that dies at any of its steps is completed by its repetition`,
        () =>
          Effect.gen(function* () {
            const expected = yield* Effect.scoped(
              Effect.gen(function* () {
                const { one, run, service } = yield* prepared
                yield* run(service, work)
                return treeOf(one.files)
              })
            )
            let n = 0
            let completed = false
            while (!completed) {
              n += 1
              completed = yield* Effect.gen(function* () {
                const { one, open, run, service, user } = yield* prepared
                const isDone = yield* Effect.scoped(
                  Effect.gen(function* () {
                    const { died } = yield* dyingBefore(n)
                    const running = yield* Effect.forkDetach(run(service, work))
                    return yield* Effect.raceFirst(
                      Effect.as(died, false),
                      Effect.as(Fiber.join(running), true)
                    )
                  })
                )
                const restarted = yield* open
                if (n % 2 === 0) yield* restarted.open(one.folder, one.spec, "process", user)
                yield* run(restarted, work)
                assert.deepStrictEqual(treeOf(one.files), expected, `killed before change ${n}`)
                yield* restarted.close(one.folder)
                return isDone
              }).pipe(Effect.scoped)
            }
            assert.isAbove(n, 5)
          }),
        120_000
      )
    }
  })
}
