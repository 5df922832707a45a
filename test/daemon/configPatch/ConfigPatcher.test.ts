import * as fs from "node:fs"
import { join } from "node:path"
import { NodeFileSystem } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Effect, FileSystem } from "effect"
import { ConfigParser, type ConfigPatches } from "../../../src/contract/domain/ConfigPatch.ts"
import { configsOf } from "../../../src/controlPlane/blueprints/parse/files.ts"
import { parseFile } from "../../../src/controlPlane/blueprints/parse/parse.ts"
import { applyConfigs } from "../../../src/daemon/configPatch/ConfigPatcher.ts"
import { isShort } from "../../../src/daemon/configPatch/patchAside.ts"
import type { PlaceholderContext } from "../../../src/daemon/configPatch/placeholders.ts"

const context: PlaceholderContext = {
  server_id: "srv_1",
  version: "1.21",
  ip: "10.0.0.1",
  port: 25565,
  ports: [25565],
  named: {},
  memoryMib: 0,
  env: { MOTD: "hi" }
}

const folder = FileSystem.FileSystem.pipe(
  Effect.flatMap((files) => files.makeTempDirectoryScoped({ prefix: "muster-configs-" })),
  Effect.provide(NodeFileSystem.layer)
)

const failure = (root: string, patches: ConfigPatches) => Effect.flip(applyConfigs(root, patches, context))

describe("Config patches", () => {
  it("of a long file, or of many values, run outside the thread that serves requests", () => {
    const find = Object.fromEntries(Array.from({ length: 101 }, (_, n) => [`k${n}`, "v"]))
    for (const parser of ConfigParser.literals) {
      assert.isTrue(isShort({ parser, text: "a".repeat(500), find: { k: "v" } }), parser)
      assert.isFalse(isShort({ parser, text: "a".repeat(16_385), find: { k: "v" } }), parser)
      assert.isFalse(isShort({ parser, text: "a", find }), parser)
    }
  })

  it.effect("every parser expands placeholders; typed formats get numbers", () =>
    Effect.gen(function* () {
      const root = yield* folder
      fs.writeFileSync(join(root, "start.sh"), "PORT=1\nrest\n")
      const port = "{{server.build.default.port}}"
      yield* applyConfigs(
        root,
        {
          "server.properties": { parser: "properties", find: { "server-port": port, motd: "{{env.MOTD}}" } },
          "config/a.yml": { parser: "yaml", find: { "net.port": port, name: `p ${port}` } },
          "a.json": { parser: "json", find: { port } },
          "a.toml": { parser: "toml", find: { "net.port": port } },
          "a.ini": { parser: "ini", find: { "net.port": port } },
          "a.xml": { parser: "xml", find: { "net.port": port } },
          "start.sh": { parser: "file", find: { "PORT=": `PORT=${port}` } },
          "missing.sh": { parser: "file", find: { x: "y" } }
        },
        context
      )
      const text = (file: string) => fs.readFileSync(join(root, file), "utf8")
      assert.strictEqual(text("server.properties"), "server-port=25565\nmotd=hi\n")
      assert.strictEqual(text("config/a.yml"), "net:\n  port: 25565\nname: p 25565\n")
      assert.strictEqual(text("a.json"), '{\n  "port": 25565\n}\n')
      assert.strictEqual(text("a.toml"), "[net]\nport = 25565\n")
      assert.strictEqual(text("a.ini"), "[net]\nport=25565\n")
      assert.strictEqual(
        text("a.xml"),
        '<?xml version="1.0" encoding="UTF-8"?>\n<net>\n  <port>25565</port>\n</net>\n'
      )
      assert.strictEqual(text("start.sh"), "PORT=25565\nrest\n")
      assert.isFalse(fs.existsSync(join(root, "missing.sh")))
    })
  )

  it.effect("a value of one placeholder takes the type that stands in the file", () =>
    Effect.gen(function* () {
      const root = yield* folder
      fs.writeFileSync(
        join(root, "a.json"),
        '{"flag":false,"players":1,"ratio":0.5,"port":0,"text":"1","no":true,"word":2,"list":[1,false],"big":1}'
      )
      fs.writeFileSync(join(root, "a.yml"), 'flag: false # why\r\nplayers: 1\r\ntext: "1"\r\nword: 2\r\n')
      fs.writeFileSync(join(root, "a.toml"), 'flag = false # why\nplayers = 1.0\ntext = "1"\nword = 2\n')
      const env = { BE: "true", PLAYERS: "32", RATIO: "1.25", WORD: "x", BIG: "90071992547409931" }
      const find = {
        flag: "{{env.BE}}",
        players: "{{env.PLAYERS}}",
        text: "{{server.build.default.port}}",
        word: "{{ WORD }}"
      }
      const more = {
        ratio: "{{env.RATIO}}",
        port: "{{server.build.default.port}}",
        no: "{{env.PLAYERS}}",
        list: ["{{env.PLAYERS}}", "{{env.BE}}", "{{env.BE}}"],
        big: "{{env.BIG}}"
      }
      yield* applyConfigs(
        root,
        {
          "a.json": { parser: "json", find: { ...find, ...more } },
          "a.yml": { parser: "yaml", find },
          "a.toml": { parser: "toml", find }
        },
        { ...context, env }
      )
      assert.strictEqual(
        fs.readFileSync(join(root, "a.json"), "utf8"),
        '{"flag":true,"players":32,"ratio":1.25,"port":25565,"text":"25565","no":"32","word":"x",' +
          '"list":[32,true,"true"],"big":90071992547409931}'
      )
      assert.strictEqual(
        fs.readFileSync(join(root, "a.yml"), "utf8"),
        'flag: true # why\r\nplayers: 32\r\ntext: "25565"\r\nword: x\r\n'
      )
      assert.strictEqual(
        fs.readFileSync(join(root, "a.toml"), "utf8"),
        'flag = true # why\nplayers = 32.0\ntext = "25565"\nword = "x"\n'
      )
    })
  )

  it.effect("values of a blueprint keep their type; a quoted one stays text", () =>
    Effect.gen(function* () {
      const root = yield* folder
      const text = `mixin: { id: types }
server:
  configs:
    a.json: { parser: json, find: &find { flag: true, count: 1500, ratio: 0.5, none: null, no: "true", text: "1500" } }
    a.yml: { parser: yml, find: *find }
`
      const { definition } = parseFile("blueprints", "types.yml", new TextEncoder().encode(text))
      if (definition?.kind !== "mixin") return assert.fail("not a mixin")
      const configs = configsOf(definition.server)
      yield* applyConfigs(root, configs, context)
      const wanted = { flag: true, count: 1500, ratio: 0.5, none: null, no: "true", text: "1500" }
      const written = (file: string) => fs.readFileSync(join(root, file), "utf8")
      assert.deepStrictEqual(JSON.parse(written("a.json")), wanted)
      assert.strictEqual(
        written("a.yml"),
        'flag: true\ncount: 1500\nratio: 0.5\nnone: null\n"no": "true"\ntext: "1500"\n'
      )
      assert.deepStrictEqual(yield* applyConfigs(root, configs, context), [])
    })
  )

  it.effect("a patch without a match is a warning with file, patch and reason", () =>
    Effect.gen(function* () {
      const root = yield* folder
      fs.writeFileSync(join(root, "a.yml"), "worlds: {}\n")
      const warnings = yield* applyConfigs(
        root,
        {
          "a.yml": { parser: "yaml", find: { "worlds.*.seed": 1, b: 2 } },
          "start.sh": { parser: "file", find: { "PORT=": "PORT=1" } }
        },
        context
      )
      assert.deepStrictEqual(warnings, [
        'config patch of a.yml: "worlds.*.seed" matches nothing: `*` is in an empty list or map',
        'config patch of start.sh: "PORT=" matches nothing: the file does not exist'
      ])
      assert.strictEqual(fs.readFileSync(join(root, "a.yml"), "utf8"), "worlds: {}\nb: 2\n")
    })
  )

  it.effect("a file that already has the values is not written", () =>
    Effect.gen(function* () {
      const root = yield* folder
      const patches: ConfigPatches = { "a.yml": { parser: "yaml", find: { a: 1 } } }
      yield* applyConfigs(root, patches, context)
      const before = fs.statSync(join(root, "a.yml"))
      yield* applyConfigs(root, patches, context)
      assert.strictEqual(fs.statSync(join(root, "a.yml")).ino, before.ino)
    })
  )

  it.effect("one failure names file and reason, and changes no file", () =>
    Effect.gen(function* () {
      const root = yield* folder
      fs.writeFileSync(join(root, "broken.json"), "{")
      const good = { parser: "yaml", find: { a: 1 } } as const
      const broken = yield* failure(root, {
        "a.yml": good,
        "broken.json": { parser: "json", find: { a: 1 } }
      })
      assert.strictEqual(broken.file, "broken.json")
      assert.match(broken.reason, /not valid JSON/)
      const mistyped = yield* failure(root, {
        "a.yml": good,
        "b.yml": { parser: "yaml", find: { k: ["{{server.nam}}"] } }
      })
      assert.strictEqual(
        mistyped.message,
        'cannot patch b.yml: the key "k" has an unknown placeholder: {{server.nam}}'
      )
      assert.deepStrictEqual(fs.readdirSync(root), ["broken.json"])
    })
  )

  it.effect("two names of one file are one file", () =>
    Effect.gen(function* () {
      const root = yield* folder
      yield* applyConfigs(
        root,
        { "a.yml": { parser: "yaml", find: { a: 1 } }, ".//a.yml": { parser: "yaml", find: { b: 2 } } },
        context
      )
      assert.strictEqual(fs.readFileSync(join(root, "a.yml"), "utf8"), "a: 1\nb: 2\n")
    })
  )

  it.effect("paths that leave the folder are refused", () =>
    Effect.gen(function* () {
      const root = yield* folder
      const inner = join(root, "inner")
      fs.mkdirSync(inner)
      fs.writeFileSync(join(root, "a.yml"), "a: 0\n")
      fs.symlinkSync("..", join(inner, "up"))
      fs.symlinkSync("../a.yml", join(inner, "link.yml"))
      for (const file of ["../a.yml", join(root, "a.yml"), "up/a.yml", "link.yml", "a\0.yml"]) {
        const refused = yield* failure(inner, { [file]: { parser: "yaml", find: { a: 1 } } })
        assert.strictEqual(refused.file, file)
        assert.match(refused.reason, /^its path is refused: /)
      }
      assert.strictEqual(fs.readFileSync(join(root, "a.yml"), "utf8"), "a: 0\n")
    })
  )

  it.effect("files over 10 MiB are refused", () =>
    Effect.gen(function* () {
      const root = yield* folder
      fs.writeFileSync(join(root, "a.properties"), "")
      fs.truncateSync(join(root, "a.properties"), 10 * 1024 * 1024 + 1)
      const refused = yield* failure(root, { "a.properties": { parser: "properties", find: { a: 1 } } })
      assert.strictEqual(refused.reason, "it is larger than 10 MiB")
    })
  )

  it.effect("large files are patched in a worker, with the same result", () =>
    Effect.gen(function* () {
      const root = yield* folder
      const filler = "# a comment that fills the file with text until it is large\n".repeat(2000)
      fs.writeFileSync(join(root, "a.properties"), `${filler}a=0\n`)
      fs.writeFileSync(join(root, "b.json"), `[${"1,".repeat(100_000)}`)
      yield* applyConfigs(root, { "a.properties": { parser: "properties", find: { a: 1 } } }, context)
      assert.strictEqual(fs.readFileSync(join(root, "a.properties"), "utf8"), `${filler}a=1\n`)
      const broken = yield* failure(root, { "b.json": { parser: "json", find: { "0": 1 } } })
      assert.match(broken.reason, /not valid JSON/)
    })
  )

  it.live("a file that takes the parser long is refused in a worker, which serves the next file", () =>
    Effect.gen(function* () {
      const root = yield* folder
      fs.writeFileSync(join(root, "a.yml"), '"'.repeat(65_000))
      fs.writeFileSync(join(root, "b.yml"), `${"# filler\n".repeat(600)}a: 0\n`)
      const patch = (file: string) =>
        applyConfigs(root, { [file]: { parser: "yaml", find: { a: 1 } } }, context)
      yield* patch("b.yml")
      const broken = yield* failure(root, { "a.yml": { parser: "yaml", find: { a: 2 } } })
      assert.match(broken.reason, /not valid YAML: Unexpected .* at line 1, column 3$|longer than 2 seconds/)
      fs.writeFileSync(join(root, "b.yml"), `${"# filler\n".repeat(600)}a: 0\n`)
      yield* patch("b.yml")
      assert.match(fs.readFileSync(join(root, "b.yml"), "utf8"), /\na: 1\n$/)
    })
  )

  it.effect("bytes that are not UTF-8 are kept in line formats and refused elsewhere", () =>
    Effect.gen(function* () {
      const root = yield* folder
      const latin = Buffer.from("motd=caf\u00e9\na=0\n", "latin1")
      for (const file of ["a.properties", "a.yml", "a.ini"]) fs.writeFileSync(join(root, file), latin)
      yield* applyConfigs(root, { "a.properties": { parser: "properties", find: { a: "\u4e2d" } } }, context)
      assert.deepStrictEqual(
        fs.readFileSync(join(root, "a.properties")),
        Buffer.from("motd=caf\u00e9\na=\\u4E2D\n", "latin1")
      )
      assert.strictEqual(
        (yield* failure(root, { "a.yml": { parser: "yaml", find: { a: 1 } } })).reason,
        "it is not UTF-8"
      )
      assert.match(
        (yield* failure(root, { "a.ini": { parser: "ini", find: { a: "\u4e2d" } } })).reason,
        /Latin-1/
      )
      assert.deepStrictEqual(fs.readFileSync(join(root, "a.ini")), latin)
    })
  )

  it.effect("values that are nested too deeply are refused", () =>
    Effect.gen(function* () {
      const root = yield* folder
      const deep = JSON.parse(`${'{"a":'.repeat(5000)}1${"}".repeat(5000)}`)
      const refused = yield* failure(root, { "a.json": { parser: "json", find: { deep } } })
      assert.match(refused.reason, /nested deeper than 64 levels/)
      assert.deepStrictEqual(fs.readdirSync(root), [])
    })
  )
})
