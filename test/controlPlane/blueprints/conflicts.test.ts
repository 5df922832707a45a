import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import * as fc from "fast-check"
import { blueprintSet } from "../../../src/controlPlane/blueprints/definitions.ts"
import { renderProblem, sortProblems } from "../../../src/controlPlane/blueprints/parse/located.ts"
import { parseFile } from "../../../src/controlPlane/blueprints/parse/parse.ts"
import { filePlan } from "../../../src/daemon/files/sources.ts"
import { blueprintFile } from "./support.ts"

/** Loads a folder with these files; returns its blueprints and one line per problem. */
const load = (files: Readonly<Record<string, string>>) => {
  const parsed = Object.entries(files).map(([file, text]) =>
    parseFile("blueprints", file, new TextEncoder().encode(text))
  )
  const { problems, value } = blueprintSet(parsed.flatMap(({ definition }) => definition ?? []))
  const all = [...parsed.flatMap((one) => one.problems), ...problems]
  return { blueprints: value.blueprints, problems: sortProblems(all).map(renderProblem) }
}

const problemsOf = (text: string) => load({ "a.yml": blueprintFile("a", text) }).problems

describe("spec 4.7: state: conflicts are found when a file is read", () => {
  it("a target that is the instance folder, or is not within it, is a problem", () => {
    const cases = [
      ["w:w:.", "the path `.` is the instance folder itself; name a place in it"],
      ["w:w:/", "the path `/` is the instance folder itself; name a place in it"],
      ["w:w:/home/container", "the path `/home/container` is the instance folder itself; name a place in it"],
      [`w:w:${"x".repeat(256)}`, `the path \`${"x".repeat(80)}...\` has a name of more than 255 bytes`],
      [`w:w:${"x/".repeat(65)}`, `the path \`${"x/".repeat(40)}...\` is more than 64 names deep`],
      [`w:${"x".repeat(256)}:w`, `the path \`${"x".repeat(80)}...\` has a name of more than 255 bytes`]
    ]
    for (const [volume, reason] of cases) {
      assert.deepStrictEqual(problemsOf(`state:\n  volumes:\n    - ${volume}\n`), [`a.yml:5:7: ${reason}`])
    }
    assert.deepStrictEqual(problemsOf('state: { mounts: ["/srv/m:."], copy: ["files/a:/"] }\n'), [])
  })

  it("a second entry at a target, an entry within a shared one, and a patch of a read-only file are problems", () => {
    assert.deepStrictEqual(
      problemsOf(`state:
  volumes:
    - maps:maps:/maps:ro
    - world:world:/home/container/maps/world
    - { name: late, source: late, target: logs, mode: rw }
  mounts:
    - /srv/logs:logs
    - { source: /srv/data, target: logs/deep }
  copy:
    - files/a:maps
`),
      [
        "a.yml:6:7: the target `/home/container/maps/world` of volume `world` (cow) lies in `/maps` of volume `maps` (ro), which is shared (a.yml:5)",
        "a.yml:9:7: the target `logs` of mount `/srv/logs` (rw) is that of volume `late` (rw), too: only `cow` volumes can have one together (a.yml:7)",
        "a.yml:10:7: the target `logs/deep` of mount `/srv/data` (rw) lies in `logs` of mount `/srv/logs` (rw), which is shared (a.yml:9)"
      ]
    )
    const patch = `blueprint: { id: a }
server:
  software: paper
  version: "1"
  configs:
    plugins/a.yml: { parser: yaml, find: { a: 1 } }
    lib/deep/b.yml:
      parser: yaml
      find: { a: 1 }
state: { volumes: ["lib:lib:/lib:ro"] }
`
    assert.deepStrictEqual(load({ "a.yml": patch }).problems, [
      "a.yml:7:5: the file `lib/deep/b.yml` lies in `/lib` of volume `lib` (ro), which is read-only: no patch can change it (a.yml:10)"
    ])
  })

  it("layers, nested layers, copies over them and identical entries are no conflict", () => {
    assert.deepStrictEqual(
      problemsOf(`state:
  volumes:
    - base:worlds/base:/world
    - event:worlds/event:/world
    - nether:worlds/nether:/world/nether
    - shared:shared:/world/shared:rw
    - lib:lib:/lib:ro
    - lib:lib:/lib:ro
  copy: ["files/world:world", "files/extra:world", "files/x:plugins/x"]
`),
      []
    )
  })

  it("a conflict of mixins is reported at the include, with both positions; a mixin alone is valid", () => {
    const files = {
      "mixins/maps.yml": 'mixin: { id: maps }\nstate:\n  mounts:\n    - "/srv/maps:/maps:ro"\n',
      "mixins/other.yml":
        "mixin: { id: other }\nstate:\n  volumes:\n    - other:other:/maps:rw\nserver: { configs: { maps/x.yml: { parser: yaml } } }\n",
      "mixins/both.yml": "mixin: { id: both }\nextends: [maps, other]\n"
    }
    assert.deepStrictEqual(load(files).problems, [])
    const at =
      "the target `/maps` of mount `/srv/maps` (ro) is that of volume `other` (rw), too: only `cow` volumes can have one together (mixins/maps.yml:4, mixins/other.yml:4)"
    const patch =
      "the file `maps/x.yml` lies in `/maps` of mount `/srv/maps` (ro), which is read-only: no patch can change it (mixins/other.yml:5, mixins/maps.yml:4)"
    const { blueprints, problems } = load({
      ...files,
      "a.yml": blueprintFile("a", "includes: [maps, other]\n"),
      "b.yml": blueprintFile("b", "includes: [both]\n"),
      "c.yml": blueprintFile("c", "includes: [maps]\nstate:\n  copy: [files/a:maps/a]\n"),
      "d.yml": blueprintFile("d", "includes: [maps]\n")
    })
    assert.deepStrictEqual(problems, [
      `a.yml:3:12: ${at}`,
      `a.yml:3:18: ${patch}`,
      `b.yml:3:12: ${at}`,
      `b.yml:3:12: ${patch}`
    ])
    assert.deepStrictEqual([...blueprints.keys()], ["c", "d"])
  })

  it("a blueprint resolves a conflict by replacing the volume of its mixin", () => {
    const mixin = `mixin: { id: m }
server: { configs: { lib/x.yml: { parser: yaml } } }
state: { volumes: ["lib:lib:/lib:ro"] }
`
    const blueprint = (rest: string) => blueprintFile("a", `includes: [m]\n${rest}`)
    assert.strictEqual(load({ "m.yml": mixin, "a.yml": blueprint("") }).problems.length, 1)
    const mended = blueprint('state: { volumes: ["lib:own:lib:cow"] }\n')
    assert.deepStrictEqual(load({ "m.yml": mixin, "a.yml": mended }).problems, [])
  })

  it("at most 50 conflicts of one blueprint are named", () => {
    const volumes = Array.from({ length: 5_000 }, (_, i) => `    - v${i}:v:/same:rw`).join("\n")
    const other = "state:\n  volumes:\n    - w:w:/same:ro\n"
    assert.strictEqual(
      load({
        "m.yml": `mixin: { id: m }\n${other}`,
        "a.yml": blueprintFile("a", `includes: [m]\nstate:\n  volumes:\n${volumes}\n`)
      }).problems.length,
      1
    )
    const nested = Array.from({ length: 5_000 }, (_, i) => `    - n${i}:n:/same/n${i}`).join("\n")
    assert.strictEqual(problemsOf(`${other}${nested}\n`).length, 50)
  })

  const path = fc
    .array(fc.constantFrom("a", "b", "c"), { minLength: 1, maxLength: 3 })
    .map((p) => p.join("/"))
  const state = fc.record({
    volumes: fc.array(
      fc.record({
        name: fc.constantFrom("v", "w"),
        source: path,
        target: fc.oneof(path, fc.constantFrom(".", "/", "/home/container/a")),
        mode: fc.constantFrom("cow", "rw", "ro")
      }),
      { maxLength: 3 }
    ),
    mounts: fc.array(
      fc.record({ source: path.map((p) => `/${p}`), target: path, mode: fc.constantFrom("rw", "ro") }),
      { maxLength: 2 }
    ),
    copy: fc.array(fc.record({ source: path, target: path }), { maxLength: 2 })
  })

  it("a node can make every definition that loads, however it is split into files", () => {
    let loaded = 0
    fc.assert(
      fc.property(state, state, fc.uniqueArray(path, { maxLength: 2 }), (inherited, own, patched) => {
        const configs = Object.fromEntries(patched.map((file) => [file, { parser: "yaml", find: {} }]))
        const { blueprints, problems } = load({
          "m.yml": JSON.stringify({ mixin: { id: "m" }, state: inherited }),
          "a.yml": JSON.stringify({
            blueprint: { id: "a" },
            includes: ["m"],
            server: { software: "paper", version: "1", configs },
            state: own
          })
        })
        const blueprint = blueprints.get("a")
        assert.strictEqual(blueprint === undefined, problems.length > 0)
        if (blueprint === undefined) return
        loaded++
        const { state } = blueprint
        const planned = filePlan({
          volumes: state?.volumes ?? [],
          mounts: state?.mounts ?? [],
          copy: state?.copy ?? []
        })
        assert.isTrue(Result.isSuccess(planned))
      }),
      { numRuns: 500 }
    )
    assert.isAbove(loaded, 20)
  })
})
