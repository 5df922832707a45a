import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import * as fc from "fast-check"
import {
  changesBetween,
  revisionOf,
  scriptHash,
  withImmediate
} from "../../../src/contract/domain/compareDefinitions.ts"
import { ServerDefinition } from "../../../src/contract/domain/ServerDefinition.ts"
import { definition } from "../../support/samples.ts"

const name = fc.constantFrom("a", "server.properties", "__proto__", "toString", 'q"', "")
const text = fc.constantFrom("", "x", "y")
const json = fc.oneof(text, fc.constant(null), fc.integer({ max: 3, min: 0 }), fc.constant({ deep: [1] }))

const volume = fc.record({
  name: text,
  source: text,
  target: text,
  mode: fc.constantFrom("cow" as const, "rw" as const)
})
const script = fc.constantFrom(undefined, "echo 1", "echo 2")

const definitions: fc.Arbitrary<ServerDefinition> = fc
  .record({
    blueprint_id: text,
    version: text,
    image: text,
    limits: fc.record({ memory_limit: fc.integer({ min: 0, max: 3 }) }, { requiredKeys: [] }),
    ports: fc.integer({ min: 1, max: 3 }),
    configs: fc.dictionary(
      name,
      fc.record({
        parser: fc.constantFrom("properties" as const, "yaml" as const),
        find: fc.dictionary(name, json)
      })
    ),
    env: fc.dictionary(name, text),
    volumes: fc.array(volume, { maxLength: 2 }),
    runtimes: fc.subarray(["docker" as const, "process" as const], { minLength: 1 }),
    save: fc.boolean(),
    files: fc.option(
      fc.record(
        {
          deny: fc.array(text, { maxLength: 2 }),
          mounts: fc.constantFrom("hidden" as const, "read" as const)
        },
        { requiredKeys: [] }
      ),
      { nil: undefined }
    ),
    install_script: script.map((run) =>
      run === undefined
        ? null
        : {
            entrypoint: "sh",
            script: run,
            skip_scripts: false,
            timeout: 1,
            warmup: false,
            warmup_timeout: 1,
            warmup_retries: 0,
            warmup_failure_policy: "fail" as const,
            post_warmup_script: "",
            post_warmup_timeout: 1
          }
    )
  })
  // Generated objects have no prototype; those of the program have one.
  .map((fields) => definition(JSON.parse(JSON.stringify(fields))))

const decode = Schema.decodeUnknownSync(Schema.fromJsonString(ServerDefinition))

/** Returns a definition with its objects in another order. */
const reordered = (value: unknown): unknown => {
  if (Array.isArray(value)) return value.map(reordered)
  if (typeof value !== "object" || value === null) return value
  return Object.fromEntries(
    Object.entries(value)
      .toReversed()
      .map(([key, inner]) => [key, reordered(inner)])
  )
}

const changesTo = (change: Partial<ServerDefinition>) =>
  changesBetween(definition(), definition(change)).map(({ needs, path }) => [path, needs])

describe("spec 3.12: the changes between two definitions", () => {
  it("there are none exactly if the revisions are equal, whatever the order of keys", () => {
    fc.assert(
      fc.property(definitions, definitions, (one, other) => {
        const same = revisionOf(one) === revisionOf(other)
        assert.strictEqual(changesBetween(one, other).length === 0, same)
        const again = decode(JSON.stringify(reordered(one)))
        assert.strictEqual(revisionOf(again), revisionOf(one))
        assert.deepStrictEqual(changesBetween(one, again), [])
      })
    )
  })

  it("a variable that the install script reads needs an installation, another one a restart", () => {
    const install_script = {
      entrypoint: "sh",
      script: "echo $FLAVOUR $SERVER_MEMORY",
      skip_scripts: false,
      timeout: 1,
      warmup: false,
      warmup_timeout: 1,
      warmup_retries: 0,
      warmup_failure_policy: "fail" as const,
      post_warmup_script: "",
      post_warmup_timeout: 1
    }
    const needs = (from: Partial<ServerDefinition>, to: Partial<ServerDefinition>) =>
      changesBetween(definition({ install_script, ...from }), definition({ install_script, ...to })).map(
        (change) => `${change.path}: ${change.needs}`
      )
    assert.deepStrictEqual(
      needs(
        { env: { MODE: "a", flavour: "mint" }, limits: { swap: 1 } },
        { env: { MODE: "b" }, limits: { swap: 2, memory_limit: 512 } }
      ),
      [
        "env.MODE: restart",
        "env.flavour: installation",
        "limits.memory_limit: installation",
        "limits.swap: restart"
      ]
    )
    assert.deepStrictEqual(
      needs({ env: { FLAVOUR: "a" }, install_script: null }, { env: {}, install_script: null }),
      ["env.FLAVOUR: restart"]
    )
  })

  it("a copy of every start needs a restart, another one an installation", () => {
    const copy = { source: "files/a", target: "a" }
    assert.deepStrictEqual(changesTo({ copy: [{ ...copy, when: "start" }] }), [["copy", "restart"]])
    assert.deepStrictEqual(changesTo({ copy: [copy] }), [["copy", "installation"]])
  })

  it("each path occurs once; the way back has the same paths with the values exchanged", () => {
    fc.assert(
      fc.property(definitions, definitions, (one, other) => {
        const there = changesBetween(one, other)
        const back = changesBetween(other, one)
        assert.strictEqual(new Set(there.map(({ path }) => path)).size, there.length)
        assert.deepStrictEqual(
          back.map(({ from, path, to }) => ({ path, from: to, to: from })),
          there.map(({ from, path, to }) => ({ path, from, to }))
        )
      })
    )
  })

  it("definitions of one software and version with different scripts need an installation", () => {
    fc.assert(
      fc.property(definitions, definitions, (one, other) => {
        if (scriptHash(one) === scriptHash(other)) return
        const needs = changesBetween(one, other).map((change) => change.needs)
        assert.include(needs, "installation")
      })
    )
  })

  it("what takes effect at once is no longer a change, and nothing else is", () => {
    fc.assert(
      fc.property(definitions, definitions, (one, other) => {
        const now = withImmediate(one, other)
        const left = changesBetween(one, other).filter(
          ({ needs, path }) => needs !== "nothing" || path.startsWith("install_script")
        )
        assert.deepStrictEqual(changesBetween(now, other), left)
      })
    )
  })

  it("a path names the place in the definition; brackets enclose other characters", () => {
    const patched = { "server.properties": { parser: "properties" as const, find: { motd: "a", "a.b": 1 } } }
    assert.deepStrictEqual(
      changesBetween(definition(), definition({ configs: patched, env: { MOTD: "x" } })),
      [
        { path: 'configs["server.properties"].find.motd', from: null, to: "a", needs: "restart" },
        { path: 'configs["server.properties"].find["a.b"]', from: null, to: 1, needs: "restart" },
        { path: 'configs["server.properties"].parser', from: null, to: "properties", needs: "restart" },
        { path: "env.MOTD", from: null, to: "x", needs: "restart" }
      ]
    )
  })

  it("each change needs nothing, a restart or an installation", () => {
    assert.deepStrictEqual(changesTo({ limits: { memory_limit: 1, cpu_limit: 5 } }), [
      ["limits.cpu_limit", "restart"],
      ["limits.memory_limit", "restart"]
    ])
    assert.deepStrictEqual(changesTo({ version: "2", software: "other" }), [
      ["software", "installation"],
      ["version", "installation"]
    ])
    assert.deepStrictEqual(changesTo({ image: "other" }), [["image", "restart"]])
    assert.deepStrictEqual(changesTo({ image: "other", runtimes: ["docker"] }), [
      ["image", "installation"],
      ["runtimes", "installation"]
    ])
    const { process } = definition()
    assert.deepStrictEqual(changesTo({ process: { ...process, stop_command: "end", stop_timeout: 9 } }), [
      ["process.stop_command", "restart"],
      ["process.stop_timeout", "nothing"]
    ])
    assert.deepStrictEqual(
      changesTo({
        save: false,
        blueprint_id: "other",
        restart: { on_crash: true, max_per_hour: 5 },
        placement: { locations: ["eu"], anti_affinity: false }
      }).map(([, needs]) => needs),
      ["nothing", "nothing", "nothing", "nothing"]
    )
    assert.deepStrictEqual(changesTo({ files: { deny: ["*.key"], mounts: "read" } }), [
      ["files.deny", "nothing"],
      ["files.mounts", "nothing"]
    ])
    const shared = { name: "maps", source: "maps", target: "maps", mode: "rw" as const }
    assert.deepStrictEqual(changesTo({ volumes: [shared] }), [["volumes", "restart"]])
    assert.deepStrictEqual(changesTo({ volumes: [{ ...shared, mode: "cow" }] }), [
      ["volumes", "installation"]
    ])
  })
})
