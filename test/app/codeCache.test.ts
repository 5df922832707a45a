import { execFileSync } from "node:child_process"
import {
  chmodSync,
  chownSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync
} from "node:fs"
import { basename, dirname, join, resolve } from "node:path"
import { pathToFileURL } from "node:url"
import { crc32 } from "node:zlib"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { BUILTINS } from "../../src/app/builtins.ts"
import { codeCache } from "../../src/app/codeCache.ts"
import { muster } from "../support/command.ts"
import { writeFiles } from "../support/definitions.ts"
import { startService } from "../support/Service.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"

const chunks = resolve(import.meta.dirname, "../../dist/chunks")

/** Returns the modules of Node.js that a part of the bundle and its imports load. */
const builtinsOf = (chunk: string, seen = new Set<string>()): ReadonlyArray<string> => {
  if (seen.has(chunk)) return []
  seen.add(chunk)
  const text = readFileSync(chunk, "utf8")
  const found = [...text.matchAll(/^\S.* = require\("([^"]+)"\)/gm)].map(([, name = ""]) => name)
  return found.flatMap((name) =>
    name.startsWith(".") ? builtinsOf(resolve(chunk, "..", name), seen) : [name]
  )
}

/** A part that has a value and a function. */
const part = (value: number) => `exports.value = ${value}
exports.fail = () => new Error("failed")
exports.use = () => require("./other.cjs")
`

/** A bundle of two parts, and a folder for its code. V8 remembers the code of a path: other processes have a copy. */
const bundle = Effect.gen(function* () {
  const root = yield* temporaryFolder
  yield* writeFiles(root, {
    "one.cjs": part(1),
    "other.cjs": "exports.os = require('node:os')\nexports.ofPackage = require('of-package')\n",
    "node_modules/of-package/package.json": JSON.stringify({
      name: "of-package",
      type: "module",
      main: "main.js"
    }),
    "node_modules/of-package/main.js": "export const name = 'of a package'\n"
  })
  return { one: join(root, "one.cjs"), folder: join(root, "cache") }
})

interface Part {
  readonly value: number
  readonly fail: () => Error
  readonly use: () => { readonly os: unknown; readonly ofPackage: { readonly name: string } }
}

// the tests load only parts that are written by `part`
const load = (file: string, cache = codeCache(undefined)) => cache.load(file) as Part

/** Loads a part as a process does; returns its value. */
const run = (file: string, folder: string | undefined) => {
  const cache = codeCache(folder)
  const { value } = load(file, cache)
  cache.store()
  return value
}

/** Returns the path of the stored code of a part. */
const storedIn = (folder: string, name = "one.cjs") => join(folder, readdirSync(folder)[0] ?? "", name)

/** Code that V8 and the checksums accept for `part(1)`, and that is the code of `part(6)`, as an attacker makes it. */
const poisoned = Effect.gen(function* () {
  const [{ folder, one }, evil] = yield* Effect.all([bundle, bundle])
  run(one, folder)
  const stored = storedIn(folder)
  const sourceSum = readFileSync(stored).subarray(0, 4)
  writeFileSync(evil.one, part(6))
  run(evil.one, evil.folder)
  const poison = Buffer.concat([sourceSum, readFileSync(storedIn(evil.folder)).subarray(4)])
  /** Returns the value of the part, after the owner or the mode of the poison was changed. */
  const runPoisoned = Effect.fnUntraced(function* (change: () => void) {
    rmSync(stored, { force: true })
    chmodSync(dirname(stored), 0o755)
    chownSync(dirname(stored), process.geteuid?.() ?? -1, -1)
    writeFileSync(stored, poison, { mode: 0o644 })
    change()
    return run((yield* bundle).one, folder)
  })
  assert.strictEqual(yield* runPoisoned(() => {}), 6, "the poison has no effect")
  return { folder, stored, runPoisoned }
})

describe("docs/development.md: the code cache", () => {
  it("the modules of Node.js that a service loads are those that main.ts loads before it sets flags", () => {
    const run = readFileSync(join(chunks, "run.cjs"), "utf8")
    const services = [...run.matchAll(/require\("\.\/((?:serve|node)-[^"]+)"\)/g)].map(
      ([, name = ""]) => name
    )
    assert.isAtLeast(services.length, 2)
    const loaded = ["run.cjs", ...services].flatMap((name) => builtinsOf(join(chunks, name)))
    const names = loaded.map((name) => (name.startsWith("node:") ? name : `node:${name}`))
    assert.deepStrictEqual([...new Set(names)].toSorted(), BUILTINS)
  })

  it("the parts of the bundle are in ASCII, as which they are read", () => {
    const others = readdirSync(chunks).filter((name) =>
      /[\u0080-\uffff]/.test(readFileSync(join(chunks, name), "utf8"))
    )
    assert.deepStrictEqual(others, [])
  })

  it.effect(
    "a part runs once, with lines in its stack traces, the parts that it requires, and modules of packages",
    () =>
      Effect.gen(function* () {
        const { one } = yield* bundle
        const cache = codeCache(undefined)
        const { fail, use } = load(one, cache)
        assert.strictEqual(load(one, cache).fail, fail)
        assert.include(fail().stack, `${one}:2:22`)
        assert.strictEqual(use().os, process.getBuiltinModule("node:os"))
        assert.strictEqual(use().ofPackage.name, "of a package")
      })
  )

  it.effect("it has the functions that were called before it was stored", () =>
    Effect.gen(function* () {
      const [called, not] = yield* Effect.all([bundle, bundle])
      run(not.one, not.folder)
      const cache = codeCache(called.folder)
      load(called.one, cache).fail()
      cache.store()
      assert.isAbove(statSync(storedIn(called.folder)).size, statSync(storedIn(not.folder)).size)
    })
  )

  it.effect("code that V8 has accepted stays as it is", () =>
    Effect.gen(function* () {
      const { folder, one } = yield* bundle
      run(one, folder)
      const { ino } = statSync(storedIn(folder))
      const copy = yield* bundle
      assert.strictEqual(run(copy.one, folder), 1)
      assert.strictEqual(statSync(storedIn(folder)).ino, ino)
    })
  )

  it.effect("the code of another source of the same length never runs, and is replaced", () =>
    Effect.gen(function* () {
      const { folder, one } = yield* bundle
      run(one, folder)
      const before = readFileSync(storedIn(folder))
      writeFileSync(one, part(2))
      assert.strictEqual(run(one, folder), 2)
      assert.notDeepEqual(readFileSync(storedIn(folder)), before)
      assert.strictEqual(run(one, folder), 2)
    })
  )

  it.effect("damaged and truncated code never runs, and is replaced", () =>
    Effect.gen(function* () {
      const { folder, one } = yield* bundle
      run(one, folder)
      const whole = readFileSync(storedIn(folder))
      const flipped = Buffer.from(whole)
      flipped.writeUInt8(255 - flipped.readUInt8(whole.length - 9), whole.length - 9)
      for (const damaged of [
        flipped,
        whole.subarray(0, whole.length - 8),
        whole.subarray(0, 5),
        Buffer.alloc(0)
      ]) {
        writeFileSync(storedIn(folder), damaged)
        assert.strictEqual(run(one, folder), 1)
        assert.isAbove(readFileSync(storedIn(folder)).length, whole.length / 2)
        assert.notDeepEqual(readFileSync(storedIn(folder)), damaged)
      }
    })
  )

  it.effect("code that V8 rejects is replaced", () =>
    Effect.gen(function* () {
      const { folder, one } = yield* bundle
      run(one, folder)
      const foreign = readFileSync(storedIn(folder))
      foreign.fill(0, 8, 24) // where V8 has its version and its flags
      foreign.writeUInt32LE(crc32(foreign.subarray(8)), 4)
      writeFileSync(storedIn(folder), foreign)
      const copy = yield* bundle
      assert.strictEqual(run(copy.one, folder), 1)
      assert.notDeepEqual(readFileSync(storedIn(folder)), foreign)
    })
  )

  it.effect("code that another user can have written never runs", () =>
    Effect.gen(function* () {
      const { folder, runPoisoned, stored } = yield* poisoned
      for (const mode of [0o664, 0o646]) {
        assert.strictEqual(yield* runPoisoned(() => chmodSync(stored, mode)), 1, mode.toString(8))
      }
      for (const mode of [0o775, 0o757, 0o1777]) {
        assert.strictEqual(yield* runPoisoned(() => chmodSync(dirname(stored), mode)), 1, mode.toString(8))
      }
      const link = () => {
        renameSync(stored, join(folder, "elsewhere"))
        symlinkSync(join(folder, "elsewhere"), stored)
      }
      assert.strictEqual(yield* runPoisoned(link), 1)
    })
  )

  it.effect.runIf(process.geteuid?.() === 0)("the code of another user never runs", () =>
    Effect.gen(function* () {
      const { runPoisoned, stored } = yield* poisoned
      for (const path of [stored, dirname(stored)]) {
        assert.strictEqual(yield* runPoisoned(() => chownSync(path, 5620, 5620)), 1, path)
      }
    })
  )

  it.effect("a start does not wait for a pipe in the place of stored code", () =>
    Effect.gen(function* () {
      const { folder, one } = yield* bundle
      run(one, folder)
      rmSync(storedIn(folder))
      execFileSync("mkfifo", [storedIn(folder)])
      const program = `import("${pathToFileURL(resolve("src/app/codeCache.ts")).href}")
        .then(({ codeCache }) => codeCache(${JSON.stringify(folder)}).load(${JSON.stringify(one)}))`
      execFileSync(process.execPath, ["-e", program], { timeout: 20_000, killSignal: "SIGKILL" })
    })
  )

  it.effect("what is written is writable for its owner alone, and not written to a folder of others", () =>
    Effect.gen(function* () {
      const [{ folder, one }, shared] = yield* Effect.all([bundle, bundle])
      const umask = process.umask(0)
      try {
        run(one, folder)
      } finally {
        process.umask(umask)
      }
      const place = dirname(storedIn(folder))
      assert.deepStrictEqual(
        [statSync(place).mode & 0o777, statSync(storedIn(folder)).mode & 0o777],
        [0o755, 0o644]
      )
      const open = join(shared.folder, basename(place))
      mkdirSync(open, { recursive: true })
      chmodSync(open, 0o777)
      run(shared.one, shared.folder)
      assert.deepStrictEqual(readdirSync(open), [])
    })
  )

  it.effect("the code of earlier bundles and drafts of killed processes are removed; other files stay", () =>
    Effect.gen(function* () {
      const { folder, one } = yield* bundle
      run(one, folder)
      const place = dirname(storedIn(folder))
      yield* writeFiles(place, {
        "serve-OLD_hash.cjs": "",
        "one.cjs.4711": "",
        "other.cjs": "",
        "notes.txt": ""
      })
      const cache = codeCache(folder)
      writeFileSync(one, part(2))
      load(one, cache)
      cache.store()
      assert.deepStrictEqual(readdirSync(place).toSorted(), ["notes.txt", "one.cjs", "other.cjs"])
    })
  )

  it.effect("a part runs without a cache, and if the folder cannot be written", () =>
    Effect.gen(function* () {
      const { folder, one } = yield* bundle
      assert.strictEqual(run(one, undefined), 1)
      writeFileSync(folder, "a file, in which there are no folders")
      assert.strictEqual(run(one, folder), 1)
      assert.strictEqual(run(one, join(folder, "deeper")), 1)
    })
  )

  it.effect("no draft stays if the code cannot be written", () =>
    Effect.gen(function* () {
      const { folder, one } = yield* bundle
      run(one, folder)
      const place = resolve(storedIn(folder), "..")
      const taken = storedIn(folder, "other.cjs")
      mkdirSync(join(taken, "in the way"), { recursive: true })
      const cache = codeCache(folder)
      load(one, cache).use()
      cache.store()
      assert.deepStrictEqual(readdirSync(place).toSorted(), ["one.cjs", "other.cjs"])
    })
  )

  it.live("a service writes the code of its start, and help leaves it as it is", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      const env = { NODE_COMPILE_CACHE: folder }
      const filesNow = () =>
        readdirSync(folder, { recursive: true, encoding: "utf8" })
          .filter((name) => /^[0-9a-f]+\/.*\.cjs$/.test(name))
          .map((name) => `${name} ${statSync(join(folder, name)).ino}`)
          .toSorted()
      yield* muster(["serve", "--help"], env)
      assert.deepStrictEqual(filesNow(), [])
      yield* Effect.scoped(startService({ env }))
      const written = filesNow()
      assert.isTrue(written.some((name) => name.includes("/run.cjs")))
      assert.isTrue(written.some((name) => name.includes("/serve-")))
      yield* muster(["serve", "--help"], env)
      assert.deepStrictEqual(filesNow(), written)
    })
  )

  it.live("a service says that its cache is not used, if another user can write there", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      const start = Effect.scoped(
        Effect.gen(function* () {
          const { kill, output } = yield* startService({ env: { NODE_COMPILE_CACHE: folder } })
          yield* kill("SIGTERM")
          return output()
        })
      )
      const says = /another user can write to (\S+): /
      assert.notMatch(yield* start, says)
      const place = readdirSync(folder)
        .map((name) => join(folder, name))
        .find((path) => readdirSync(path).includes("run.cjs"))
      chmodSync(place ?? "", 0o777)
      assert.strictEqual(says.exec(yield* start)?.[1], place)
    })
  )

  it.live(
    "a command writes its code to another folder than a service, and none if Node.js has no cache",
    () =>
      Effect.gen(function* () {
        const folder = yield* temporaryFolder
        yield* muster(["--version"], { NODE_COMPILE_CACHE: folder, NODE_DISABLE_COMPILE_CACHE: "1" })
        assert.deepStrictEqual(readdirSync(folder), [])
        const { code } = yield* muster(["--version"], { NODE_COMPILE_CACHE: folder })
        assert.strictEqual(code, 0)
        const found = readdirSync(folder, { recursive: true, encoding: "utf8" })
        assert.isTrue(found.some((name) => name.endsWith("/run.cjs")))
      })
  )
})
