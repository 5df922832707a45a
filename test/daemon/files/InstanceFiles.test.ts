import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  statSync,
  symlinkSync,
  writeFileSync
} from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { makeInstance, overlayInstance } from "../../../src/daemon/files/InstanceFiles.ts"
import type { ServerDefinition } from "../../../src/domain/ServerDefinition.ts"
import { dataFolder, harness, specOf, until } from "../support.ts"

const write = (root: string, files: Readonly<Record<string, string>>) => {
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(join(root, name, ".."), { recursive: true })
    writeFileSync(join(root, name), text)
  }
}

const scene = Effect.gen(function* () {
  const data_dir = yield* dataFolder
  const folder = join(data_dir, "servers", "s")
  const base = join(data_dir, "base")
  const allowed = join(data_dir, "host")
  write(base, { "server.jar": "jar", "world/default": "d" })
  write(allowed, { "maps/m": "m" })
  mkdirSync(folder, { recursive: true })
  const sources = { data_dir, volumes_dir: join(data_dir, "volumes"), allowed_mounts: [allowed] }
  mkdirSync(sources.volumes_dir)
  const make = (definition: Partial<ServerDefinition>) =>
    makeInstance(folder, base, specOf({ definition }), sources)
  const overlay = (definition: Partial<ServerDefinition>) =>
    overlayInstance(folder, base, specOf({ definition }), sources)
  return {
    data_dir,
    folder,
    files: join(folder, "files"),
    base,
    allowed,
    volumes: sources.volumes_dir,
    make,
    overlay
  }
})

describe("blueprints, instances", () => {
  it.effect("are a copy of the base with modes and links, independent of it", () =>
    Effect.gen(function* () {
      const { base, files, make } = yield* scene
      chmodSync(join(base, "server.jar"), 0o755)
      symlinkSync("server.jar", join(base, "link"))
      yield* make({})
      assert.strictEqual(statSync(join(files, "server.jar")).mode & 0o777, 0o755)
      assert.strictEqual(readlinkSync(join(files, "link")), "server.jar")
      writeFileSync(join(files, "world/default"), "changed")
      assert.strictEqual(readFileSync(join(base, "world/default"), "utf8"), "d")
    }).pipe(Effect.scoped)
  )

  it.effect("cow volumes are copies, rw and ro volumes shared, mounts linked, copies copied", () =>
    Effect.gen(function* () {
      const { allowed, data_dir, files, make, volumes } = yield* scene
      write(volumes, { "worlds/a/level": "A", "lib/x": "X" })
      write(data_dir, { "files/config.yml": "c: 1" })
      yield* make({
        volumes: [
          { name: "w", source: "worlds/a", target: "/world", mode: "cow" },
          { name: "s", source: "shared/new", target: "/shared", mode: "rw" },
          { name: "l", source: "lib", target: "lib", mode: "ro" }
        ],
        mounts: [{ source: join(allowed, "maps"), target: "/home/container/maps", mode: "ro" }],
        copy: [{ source: "files/config.yml", target: "plugins/config.yml" }]
      })
      assert.deepStrictEqual(readdirSync(join(files, "world")).sort(), ["default", "level"])
      writeFileSync(join(files, "world/level"), "mine")
      assert.strictEqual(readFileSync(join(volumes, "worlds/a/level"), "utf8"), "A")
      writeFileSync(join(files, "shared/f"), "all")
      assert.strictEqual(readFileSync(join(volumes, "shared/new/f"), "utf8"), "all")
      assert.isTrue(lstatSync(join(files, "lib")).isSymbolicLink())
      assert.strictEqual(readFileSync(join(files, "maps/m"), "utf8"), "m")
      assert.strictEqual(readFileSync(join(files, "plugins/config.yml"), "utf8"), "c: 1")
    }).pipe(Effect.scoped)
  )

  it.effect("no source and no target leaves its folder; a refusal leaves nothing half-made", () =>
    Effect.gen(function* () {
      const { data_dir, folder, make, volumes } = yield* scene
      write(data_dir, { "admin.key": "secret", "files/ok": "" })
      symlinkSync("/etc", join(volumes, "etc"))
      symlinkSync("/etc", join(data_dir, "files/etc"))
      const volume = (source: string, target = "x") => ({
        volumes: [{ name: "v", source, target, mode: "cow" as const }]
      })
      const copy = (source: string, target = "x") => ({ copy: [{ source, target }] })
      const mount = (source: string) => ({ mounts: [{ source, target: "x", mode: "rw" as const }] })
      const refused = [
        volume("../servers"),
        volume("/etc"),
        volume("etc"),
        volume("w", "../../x"),
        volume("w", "/"),
        copy("../x"),
        copy("files/etc"),
        copy("files/missing"),
        copy("admin.key"),
        copy("files/ok", "/../x"),
        mount("/etc"),
        mount(join(data_dir, "host/../volumes")),
        mount("relative"),
        { ...mount(join(data_dir, "host/maps")), ...copy("files/ok", "x/through-the-mount") }
      ]
      for (const definition of refused) {
        const error = yield* Effect.flip(make(definition))
        assert.include(["REFUSED", "ENOENT"], error.code, JSON.stringify(definition))
        assert.deepStrictEqual(readdirSync(folder), [], JSON.stringify(definition))
      }
      assert.isFalse(existsSync(join(data_dir, "host/maps/through-the-mount")))
    }).pipe(Effect.scoped)
  )

  it.effect("an overlay writes through no link that the server has made", () =>
    Effect.gen(function* () {
      const { data_dir, files, make, overlay } = yield* scene
      yield* make({})
      write(data_dir, { "outside/default": "untouched" })
      writeFileSync(join(files, "mine"), "mine")
      yield* Effect.sync(() => {
        chmodSync(files, 0o755)
      })
      const world = join(files, "world")
      yield* Effect.promise(() => import("node:fs/promises").then((fs) => fs.rm(world, { recursive: true })))
      symlinkSync(join(data_dir, "outside"), world)
      yield* overlay({})
      assert.strictEqual(readFileSync(join(data_dir, "outside/default"), "utf8"), "untouched")
      assert.strictEqual(readFileSync(join(world, "default"), "utf8"), "d")
      assert.strictEqual(readFileSync(join(files, "mine"), "utf8"), "mine")
    }).pipe(Effect.scoped)
  )

  it.live("a reset stops the server and makes its files anew; removal never follows a shared volume", () =>
    Effect.gen(function* () {
      const { daemon, data_dir, running, statuses } = yield* harness()
      const id = yield* running({
        install: { script: "echo base > file" },
        definition: { volumes: [{ name: "s", source: "s", target: "s", mode: "rw" }] }
      })
      const files = join(data_dir, "servers", id, "files")
      write(files, { file: "changed", extra: "x", "s/kept": "k" })
      yield* daemon.reset(id)
      yield* until("reset", () => existsSync(join(files, "file")) && !existsSync(join(files, "extra")))
      assert.strictEqual(readFileSync(join(files, "file"), "utf8"), "base\n")
      assert.deepStrictEqual(statuses(id).slice(-2), ["stopping", "offline"])
      yield* Effect.retry(daemon.power(id, "start", 30), { times: 1000 })
      yield* until("running", () => statuses(id).at(-1) === "running")
      yield* daemon.remove(id)
      yield* daemon.remove(id)
      assert.isFalse(existsSync(join(data_dir, "servers", id)))
      assert.strictEqual(readFileSync(join(data_dir, "volumes/s/kept"), "utf8"), "k")
    }).pipe(Effect.scoped)
  )

  it.live("a mount that is not allowed is a clear install failure", () =>
    Effect.gen(function* () {
      const { create, lastInstall } = yield* harness()
      const id = yield* create({ definition: { mounts: [{ source: "/etc", target: "etc", mode: "ro" }] } })
      yield* until("failed", () => lastInstall(id)?.phase === "failed")
      assert.strictEqual(
        lastInstall(id)?.failure_reason,
        "mount /etc is not below the allowed mounts of the node"
      )
    }).pipe(Effect.scoped)
  )
})
