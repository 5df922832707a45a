import { cpSync, readdirSync, readFileSync, statSync, symlinkSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, layer } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { createViteServer } from "vitest/node"
import { chromium, chromiumNote, openPage } from "../support/browser.ts"
import { runToEnd as run, startChild } from "../support/child.ts"
import { writeFiles } from "../support/definitions.ts"
import { printed, root } from "../support/docs.ts"
import { eventually } from "../support/eventually.ts"
import { freePort } from "../support/nodes.ts"
import { freeAllocations } from "../support/ports.ts"
import { startService } from "../support/Service.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"

const README = "src/client/README.md"

const tsconfig = (options: Readonly<Record<string, unknown>>) =>
  JSON.stringify({
    compilerOptions: {
      target: "es2024",
      lib: ["es2024", "dom", "dom.iterable", "dom.asynciterable"],
      strict: true,
      skipLibCheck: true,
      noEmit: true,
      types: [],
      ...options
    },
    include: ["*.ts"]
  })

/** A project with the packed client and `effect` of the registry, and nothing else. */
class Project extends Context.Service<Project, { readonly folder: string; readonly tarball: string }>()(
  "test/Project"
) {
  static readonly layer = Layer.effect(
    Project,
    Effect.gen(function* () {
      const checkout = yield* temporaryFolder
      for (const name of ["package.json", "tsconfig.json", "src"]) {
        cpSync(join(root, name), join(checkout, name), { recursive: true })
      }
      symlinkSync(join(root, "node_modules"), join(checkout, "node_modules"))
      const folder = yield* temporaryFolder
      yield* run(["npm", "pack", "-w", "muster-client", "--pack-destination", folder], { cwd: checkout })
      const [packed = ""] = readdirSync(folder)
      const tarball = join(folder, packed)
      const { dependencies, devDependencies } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"))
      yield* writeFiles(folder, {
        "package.json": JSON.stringify({ private: true, type: "module" }),
        "nodenext.json": tsconfig({ module: "nodenext", exactOptionalPropertyTypes: true }),
        "bundler.json": tsconfig({ module: "preserve", moduleResolution: "bundler" })
      })
      yield* run(
        [
          "npm",
          "install",
          "--no-audit",
          "--no-fund",
          tarball,
          `effect@${dependencies.effect}`,
          `typescript@${devDependencies.typescript}`
        ],
        { cwd: folder }
      )
      return { folder, tarball }
    })
  )
}

/** Serves a folder as a bundler does for a browser; returns the origin. */
const served = (folder: string) =>
  Effect.acquireRelease(
    Effect.promise(async () => {
      const server = await createViteServer({
        root: folder,
        configFile: false,
        logLevel: "error",
        server: { host: "127.0.0.1", port: 0, hmr: false },
        optimizeDeps: { include: ["muster-client/promise"] }
      })
      return server.listen()
    }),
    (server) => Effect.promise(() => server.close())
  ).pipe(
    Effect.map(({ httpServer }) => {
      const address = httpServer?.address()
      return `http://127.0.0.1:${typeof address === "object" ? address?.port : 0}`
    })
  )

/** The functions of the page, whose own code has no types. */
const page = `
import { connect } from "muster-client/promise"

globalThis.use = async (options) => {
  const muster = connect(options)
  const seen = []
  const { cursor } = await muster.list()
  const server = await muster.servers.create({ payload: { blueprint_id: "demo", start: true } })
  for await (const change of muster.follow({ from: cursor, topics: ["status"] })) {
    seen.push(change.payload)
    if (change.payload === "running") break
  }
  await muster.waitUntil(server.id, "running")
  const { close, lines, send } = await muster.console(server.id)
  await send("say hello")
  for await (const line of lines) if (line.includes("hello")) break
  seen.push("hello")
  await close()
  await muster.waitUntil("nope", "running").catch((error) => seen.push(error.code))
  return seen
}
`

const examples = ["create", "follow", "console", "files", "upload", "promise"] as const

layer(Project.layer, { excludeTestServices: true, timeout: "300 seconds" })(
  "npm pack -w muster-client",
  (it) => {
    describe("the package", () => {
      it.effect("the package is small, and has neither the service nor its dependencies", () =>
        Effect.gen(function* () {
          const { folder, tarball } = yield* Project
          assert.isBelow(statSync(tarball).size, 240_000)
          const installed = join(folder, "node_modules")
          assert.sameMembers(readdirSync(join(installed, "muster-client")), [
            "LICENSE",
            "README.md",
            "dist",
            "package.json"
          ])
          for (const [part, its] of [
            ["", ["client", "contract", "shared"]],
            ["contract", ["api", "domain"]],
            ["shared", ["work"]]
          ] as const) {
            assert.sameMembers(readdirSync(join(installed, "muster-client/dist", part)), [...its])
          }
          for (const name of ["@effect", "dockerode", "yaml"]) assert.notInclude(readdirSync(installed), name)
        })
      )
    })

    describe("its examples", () => {
      it.effect("every example type-checks; a mistake does not", () =>
        Effect.gen(function* () {
          const { folder } = yield* Project
          for (const name of examples) yield* writeFiles(folder, { [`${name}.ts`]: printed(README, name) })
          for (const config of ["nodenext.json", "bundler.json"]) {
            assert.strictEqual(yield* run(["npx", "tsc", "-p", config], { cwd: folder }), "")
          }
          const wrong = printed(README, "promise").replace("change.payload)", "change.payloads)")
          yield* writeFiles(folder, { "promise.ts": wrong })
          const check = yield* startChild(["npx", "tsc", "-p", "nodenext.json"], { cwd: folder })
          assert.notStrictEqual(yield* check.exited("120 seconds"), 0)
          assert.include(check.output(), "Property 'payloads' does not exist")
        }).pipe(Effect.scoped)
      )

      it.effect("every example runs against a service", () =>
        Effect.gen(function* () {
          const { folder } = yield* Project
          const api = yield* startService({ env: yield* freeAllocations(8) })
          const start = (name: (typeof examples)[number]) => {
            const text = printed(README, name)
              .replace("http://127.0.0.1:5620", api.url)
              .replace("<key>", api.key)
            return Effect.andThen(
              writeFiles(folder, { [`${name}.ts`]: text }),
              startChild([process.execPath, `${name}.ts`], { cwd: folder })
            )
          }
          const follower = yield* start("follow")
          yield* follower.prints(/^reset \{\}$/m)
          const created = yield* start("create")
          const [, id = ""] = yield* created.prints(/\b([a-z][a-z0-9]{11}) is running/)
          assert.strictEqual(yield* created.exited(), 0, created.output())
          yield* follower.prints(new RegExp(`^status \\{ ${id}: 'running' \\}$`, "m"))
          const console = yield* start("console")
          assert.strictEqual(yield* console.exited("60 seconds"), 0, console.output())
          assert.include(console.stdout(), "hello")
          const files = yield* start("files")
          assert.strictEqual(yield* files.exited("60 seconds"), 0, files.output())
          assert.match(files.stdout(), /^Welcome back\n\n[\s\S]*^motd\.txt 13$/m)
          const upload = yield* start("upload")
          assert.strictEqual(yield* upload.exited("60 seconds"), 0, upload.output())
          const resumed = /^0 of 41943040\n33554432 of 41943040\nstopped\ncontinues at [1-9]\d+\nstored as "/
          assert.match(upload.stdout(), resumed)
          const promise = yield* start("promise")
          assert.strictEqual(yield* promise.exited("60 seconds"), 0, promise.output())
          assert.match(promise.stdout(), /Z running\n[\s\S]*hello[\s\S]*\n404 server not found: nope GET /)
        }).pipe(Effect.scoped)
      )
    })

    describe("docs/tutorials/matchmaker.md", () => {
      it.effect(
        "each match gets a server of its own, also if it asks a restarted matchmaker again, and two are spare",
        () =>
          Effect.gen(function* () {
            const { folder } = yield* Project
            const api = yield* startService({ env: yield* freeAllocations(8) })
            const env = { MUSTER: api.url, MUSTER_URL: api.url, MUSTER_API_KEY: api.key }
            const key = printed("docs/tutorials/matchmaker.md", "key").replace(
              "npm run -s muster --",
              "exec node src/main.ts"
            )
            const matchKey = (yield* run(["sh", "-c", key], {
              cwd: root,
              env: { ...env, MUSTER_DATA_DIR: api.dataDir }
            })).trim()
            yield* writeFiles(folder, {
              "matchmaker.mjs": printed("docs/tutorials/matchmaker.md", "matchmaker")
            })
            const port = String(yield* freePort)
            const start = startChild([process.execPath, "matchmaker.mjs"], {
              cwd: folder,
              env: { ...env, MUSTER_API_KEY: matchKey, PORT: port }
            })
            const call = printed("docs/tutorials/matchmaker.md", "match").replace("8080", port)
            const taken = (match: string) =>
              eventually(
                run(["sh", "-c", call.replace("match-1", match)], { cwd: folder }).pipe(
                  Effect.orElseSucceed(() => "")
                ),
                (answer) => /^127\.0\.0\.1:\d+\n$/.test(answer),
                "60 seconds"
              )
            const addresses = new Set<string>()
            const first = yield* start
            const one = yield* taken("match-1")
            addresses.add(one).add(yield* taken("match-2"))
            const isFree = ({ labels }: { readonly labels: object }) => !("match" in labels)
            const spare = yield* eventually(
              Effect.map(api.request("GET", "/api/servers?include=labels"), ({ json }) =>
                json.filter(isFree)
              ),
              (free) => free.length >= 2
            )
            assert.strictEqual(spare.length, 2)
            yield* first.signal("SIGKILL")
            yield* first.exited()
            yield* start
            assert.strictEqual(yield* taken("match-1"), one)
            addresses.add(yield* taken("match-3")).add(yield* taken("match-4"))
            assert.strictEqual(addresses.size, 4)
          }).pipe(Effect.scoped),
        180_000
      )
    })

    describe.runIf(chromium !== undefined)(`in a browser${chromiumNote}`, () => {
      it.effect("a page of another origin calls, follows, waits and uses a console", () =>
        Effect.gen(function* () {
          const { folder } = yield* Project
          yield* writeFiles(folder, {
            "index.html": '<script type="module" src="/page.js"></script>',
            "page.js": page
          })
          const origin = yield* served(folder)
          const api = yield* startService({
            env: { ...(yield* freeAllocations(8)), MUSTER_CORS_ORIGINS: origin }
          })
          const { evaluate, problems } = yield* openPage(origin)
          yield* eventually(evaluate("typeof use"), (type) => type === "function", "60 seconds")
          const seen = yield* evaluate(`use(${JSON.stringify({ baseUrl: api.url, key: api.key })})`)
          assert.deepStrictEqual(seen, ["installing", "offline", "starting", "running", "hello", "404"])
          assert.deepStrictEqual(problems(), [])
        }).pipe(Effect.scoped)
      )
    })
  }
)
