import { readdirSync, readFileSync } from "node:fs"
import { dirname, join, resolve } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { BUILTINS } from "../../src/app/builtins.ts"
import { muster } from "../support/command.ts"

const chunks = resolve(import.meta.dirname, "../../dist/chunks")

/** Returns the modules of Node.js that a chunk and its imports load. */
const builtinsOf = (chunk: string, seen = new Set<string>()): ReadonlyArray<string> => {
  if (seen.has(chunk)) return []
  seen.add(chunk)
  const text = readFileSync(chunk, "utf8")
  const imports = /^import .*"([^"]+)";$|getBuiltinModule\("([^"]+)"\)/gm
  const found = [...text.matchAll(imports)].map(([, name, builtin]) => name ?? builtin ?? "")
  return found.flatMap((name) =>
    name.startsWith(".") ? builtinsOf(join(dirname(chunk), name), seen) : [name]
  )
}

describe("the compile cache", () => {
  it("the modules of Node.js that a service loads are those that main.ts loads before it sets flags", () => {
    const services = readdirSync(chunks).filter((name) => /^(?:run|serve|node)-/.test(name))
    const loaded = services.flatMap((name) => builtinsOf(join(chunks, name)))
    assert.deepStrictEqual([...new Set(loaded)].toSorted(), BUILTINS)
  })

  it.live("a command leaves the compiled code of the service as it is", () =>
    Effect.gen(function* () {
      const run = (args: ReadonlyArray<string>) => muster(args, { NODE_DEBUG_NATIVE: "COMPILE_CACHE" })
      yield* run(["serve", "--help"])
      yield* run(["servers", "--help"])
      const { stderr } = yield* run(["serve", "--help"])
      assert.include(stderr, "[compile cache]")
      assert.notInclude(stderr, "writing cache")
    })
  )
})
