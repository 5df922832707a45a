import { cpSync, existsSync, readFileSync, symlinkSync } from "node:fs"
import { dirname, join, resolve } from "node:path"
import { assert, describe, layer } from "@effect/vitest"
import { Context, Effect, Layer, Schema } from "effect"
import { startChild } from "../support/child.ts"
import { writeFiles } from "../support/definitions.ts"
import { printed } from "../support/docs.ts"
import { eventually } from "../support/eventually.ts"
import { freeAllocations } from "../support/ports.ts"
import { adminKey, requestTo } from "../support/Service.ts"
import { becomes } from "../support/servers.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"

const root = resolve(import.meta.dirname, "../..")
const modules = join(root, "node_modules")

const decodePackage = Schema.decodeUnknownSync(
  Schema.fromJsonString(
    Schema.Struct({
      engines: Schema.Struct({ node: Schema.String }),
      files: Schema.Array(Schema.String),
      bin: Schema.Struct({ muster: Schema.String }),
      exports: Schema.Record(Schema.String, Schema.Struct({ types: Schema.String, default: Schema.String }))
    })
  )
)

/** The published package, made by `npm pack` from a checkout. */
class Built extends Context.Service<Built, { readonly folder: string; readonly main: string }>()(
  "test/Built"
) {
  static readonly layer = Layer.effect(
    Built,
    Effect.gen(function* () {
      const checkout = yield* temporaryFolder
      const { files } = decodePackage(readFileSync(join(root, "package.json"), "utf8"))
      const ours = ["package.json", "tsconfig.json", "rolldown.config.ts", "scripts", "src"]
      const others = [...ours, "README.md", "LICENSE"]
      for (const name of [...files.filter((name) => !name.endsWith("dist")), ...others]) {
        cpSync(join(root, name), join(checkout, name), { recursive: true })
      }
      symlinkSync(modules, join(checkout, "node_modules"))
      const pack = yield* startChild(
        ["sh", "-ec", `${printed("docs/deployment.md", "package")}tar -xzf muster-*.tgz`],
        { cwd: checkout }
      )
      assert.strictEqual(yield* pack.exited("120 seconds"), 0, pack.output())
      const folder = join(checkout, "package")
      symlinkSync(modules, join(folder, "node_modules"))
      return { folder, main: join(folder, "dist/main.js") }
    })
  )
}

/** Runs a program to its end and returns its standard output. */
const run = Effect.fnUntraced(function* (
  command: readonly [string, ...ReadonlyArray<string>],
  options: {
    readonly cwd: string
    readonly env?: Record<string, string>
    readonly within?: `${number} seconds`
  }
) {
  const child = yield* startChild(command, options)
  assert.strictEqual(yield* child.exited(options.within ?? "60 seconds"), 0, child.output())
  return child.stdout()
}, Effect.scoped)

/** A project that depends on the package, with this source file. */
const consumer = Effect.fnUntraced(function* (built: string, source: string) {
  const folder = yield* temporaryFolder
  yield* writeFiles(folder, {
    "package.json": JSON.stringify({ private: true, type: "module" }),
    "tsconfig.json": JSON.stringify({
      compilerOptions: {
        target: "es2024",
        lib: ["es2024"],
        module: "nodenext",
        strict: true,
        exactOptionalPropertyTypes: true,
        skipLibCheck: true,
        noEmit: true,
        types: []
      },
      include: ["example.ts"]
    }),
    "example.ts": source,
    "node_modules/.keep": ""
  })
  symlinkSync(built, join(folder, "node_modules/muster"))
  symlinkSync(join(modules, "effect"), join(folder, "node_modules/effect"))
  return folder
})

/** The same module as that of the package of the client. */
const snippet = printed("src/client/README.md", "create").replace("muster-client", "muster/client")
const typeScript = join(modules, ".bin/tsc")

layer(Built.layer, { excludeTestServices: true, timeout: "150 seconds" })("npm pack", (it) => {
  describe("the contents of the package", () => {
    it.effect("the package has the command, the client and its declarations", () =>
      Effect.gen(function* () {
        const { folder } = yield* Built
        const { bin, exports } = decodePackage(readFileSync(join(folder, "package.json"), "utf8"))
        const named = [bin.muster, ...Object.values(exports).flatMap((entry) => [entry.types, entry.default])]
        for (const file of named) assert.isTrue(existsSync(join(folder, file)), file)
      })
    )
  })

  describe("docs/development.md, the bundle", () => {
    it.effect("a build removes the parts of earlier builds", () =>
      Effect.gen(function* () {
        const checkout = dirname((yield* Built).folder)
        yield* writeFiles(join(checkout, "dist/chunks"), { "serve-of_before.js": "" })
        yield* run(["npm", "run", "-s", "build"], { cwd: checkout })
        assert.isFalse(existsSync(join(checkout, "dist/chunks/serve-of_before.js")))
        assert.isTrue(existsSync(join(checkout, "dist/chunks/run.js")))
      })
    )
  })

  describe("docs/deployment.md, Install with systemd", () => {
    it.effect(
      "as printed: the package is installed with its Node.js, the units and the examples of settings",
      () =>
        Effect.gen(function* () {
          const { folder } = yield* Built
          const to = join(yield* temporaryFolder, "muster")
          const printedLines = printed("docs/deployment.md", "install").replaceAll("/opt/muster", to)
          const output = yield* run(["sh", "-ec", printedLines], {
            cwd: dirname(folder),
            within: "240 seconds"
          })
          assert.match(output, /muster v\d+\.\d+\.\d+\n$/)
          const deploy = join(to, "node_modules/muster/deploy")
          const listed = [
            "systemd/muster.service",
            "proxy/Caddyfile",
            "compose.yaml",
            "monitoring/alerts.yml"
          ]
          for (const file of listed) assert.isTrue(existsSync(join(deploy, file)), file)
        }).pipe(Effect.scoped),
      260_000
    )
  })

  describe("the command of the package", () => {
    it.effect("--version and --help print the version and the help", () =>
      Effect.gen(function* () {
        const { folder, main } = yield* Built
        assert.match(
          yield* run([process.execPath, main, "--version"], { cwd: folder }),
          /^muster v\d+\.\d+\.\d+\n$/
        )
        const help = yield* run([process.execPath, main, "--help"], { cwd: folder })
        assert.match(help, /muster <subcommand>/)
        for (const name of ["serve", "keys"]) assert.match(help, new RegExp(`^  ${name} +\\S`, "m"))
      })
    )

    it.effect("an older Node.js is refused with one sentence", () =>
      Effect.gen(function* () {
        const { folder, main } = yield* Built
        const { engines } = decodePackage(readFileSync(join(folder, "package.json"), "utf8"))
        const old = `data:text/javascript,Object.defineProperty(process.versions,"node",{value:"20.20.2"})`
        const child = yield* startChild([process.execPath, "--import", old, main, "serve"], { cwd: folder })
        assert.strictEqual(yield* child.exited(), 1)
        const oldest = engines.node.replace(">=", "")
        assert.strictEqual(
          child.output(),
          `Muster needs Node.js ${oldest} or later, and this is 20.20.2: install a newer Node.js.\n`
        )
      }).pipe(Effect.scoped)
    )

    it.effect("init writes the examples of the package and keeps existing files", () =>
      Effect.gen(function* () {
        const { main } = yield* Built
        const cwd = yield* temporaryFolder
        yield* writeFiles(cwd, { "blueprints/demo.yml": "# mine\n" })
        const written = yield* run([process.execPath, main, "init"], { cwd })
        assert.include(written, "software/demo.yml\n")
        assert.include(written, "blueprints/mixins/defaults.yml\n")
        assert.notInclude(written, "blueprints/demo.yml")
        assert.strictEqual(readFileSync(join(cwd, "blueprints/demo.yml"), "utf8"), "# mine\n")
        assert.match(yield* run([process.execPath, main, "init"], { cwd }), /^All examples exist already/)
      }).pipe(Effect.scoped)
    )

    it.effect("serve gives a hint in an empty folder; then SIGHUP loads the examples", () =>
      Effect.gen(function* () {
        const { main } = yield* Built
        const cwd = yield* temporaryFolder
        const service = yield* startChild([process.execPath, main, "serve"], {
          cwd,
          env: { MUSTER_PORT: "0", APP_ADMIN_API_KEY: adminKey, ...(yield* freeAllocations(1)) }
        })
        const [, url = "", hangup = ""] = yield* service.prints(
          /listens on (http:\S+)[\s\S]*no blueprints in .*`muster init`.*`(kill -HUP \d+)`/
        )
        yield* run([process.execPath, main, "init"], { cwd })
        yield* run(["sh", "-c", hangup], { cwd })
        yield* eventually(
          requestTo(url, adminKey)("GET", "/api/blueprints/demo"),
          ({ status }) => status === 200
        )
        yield* service.signal("SIGTERM")
        assert.strictEqual(yield* service.exited(), 0)
      }).pipe(Effect.scoped)
    )

    it.effect("keys create makes a key", () =>
      Effect.gen(function* () {
        const { folder, main } = yield* Built
        yield* run([process.execPath, main, "db", "migrate"], { cwd: folder })
        const create = ["keys", "create", "--name", "ci", "--database"]
        const made = yield* run([process.execPath, main, ...create], { cwd: folder })
        assert.match(made, /^mst_[A-Za-z0-9]{49}\n$/)
      })
    )
  })

  describe("the client of the package", () => {
    it.effect("the example of its README type-checks; an unknown field does not", () =>
      Effect.gen(function* () {
        const { folder } = yield* Built
        assert.include(snippet, "server.id")
        const right = yield* consumer(folder, snippet)
        assert.strictEqual(yield* run([typeScript, "-p", right], { cwd: right }), "")
        const wrong = yield* consumer(folder, snippet.replace("server.id", "server.idd"))
        const check = yield* startChild([typeScript, "-p", wrong], { cwd: wrong })
        assert.notStrictEqual(yield* check.exited("60 seconds"), 0)
        assert.include(check.output(), "Property 'idd' does not exist")
      }).pipe(Effect.scoped)
    )

    it.effect("the example of its README creates a server of the built service", () =>
      Effect.gen(function* () {
        const { folder, main } = yield* Built
        const service = yield* startChild([process.execPath, main, "serve"], {
          cwd: folder,
          env: {
            MUSTER_PORT: "0",
            MUSTER_DATA_DIR: join(yield* temporaryFolder, "data"),
            APP_ADMIN_API_KEY: adminKey,
            ...(yield* freeAllocations(4))
          }
        })
        const [, url = ""] = yield* service.prints(/listens on (http:\S+)/)
        const source = snippet.replace("http://127.0.0.1:5620", url).replace("<key>", adminKey)
        const project = yield* consumer(folder, source)
        const output = yield* run([process.execPath, "example.ts"], { cwd: project })
        const id = /\b[a-z][a-z0-9]{11}\b/.exec(output)?.[0] ?? output
        yield* becomes({ request: requestTo(url, adminKey) }, id, "running")
        yield* service.signal("SIGTERM")
        assert.strictEqual(yield* service.exited(), 0, service.output())
      }).pipe(Effect.scoped)
    )
  })
})
