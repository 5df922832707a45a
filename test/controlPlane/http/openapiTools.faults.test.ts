/** The OpenAPI document in the hands of other programs: generators of clients, linters, a fuzzer. */
import { join } from "node:path"
import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { runToEnd } from "../../support/child.ts"
import { writeFiles } from "../../support/definitions.ts"
import { printed } from "../../support/docs.ts"
import { installed } from "../../support/servers.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"
import { Described, described, hasGo, hasNpm, named, slow, TYPESCRIPT, works } from "./support/generators.ts"

const GO_TOOLS = {
  "oapi-codegen": "github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2",
  ogen: "github.com/ogen-go/ogen/cmd/ogen@v1.24.0"
} as const
const TYPES = "openapi-typescript@7.13.0"
const LINTERS = ["@redocly/cli@2.77.0", "@stoplight/spectral-cli@6.16.3", TYPESCRIPT]
const FUZZER = "schemathesis==4.32.5"

const hasPyPi = works(`python3 -m pip download -q --no-deps -d /tmp/muster-test-wheels ${FUZZER}`)

layer(described, { excludeTestServices: true, timeout: "600 seconds" })("spec 1.10: /openapi.json", (it) => {
  describe.runIf(hasGo)(`generators in Go${named(hasGo, "Go and its module proxy")}`, slow, () => {
    it.effect("oapi-codegen makes a client that compiles, and so does ogen", () =>
      Effect.gen(function* () {
        const { folder } = yield* Described
        const document = join(folder, "openapi-3.0.json")
        const module = yield* temporaryFolder
        yield* writeFiles(module, {
          "go.mod": "module example.com/muster\n",
          "oapi/placeholder.go": "package muster\n",
          // Without the code of a server, whose type is called Server too.
          "ogen.yml": printed("docs/clients.md", "ogen")
        })
        const inModule = { cwd: module }
        yield* runToEnd(
          [
            "go",
            "run",
            GO_TOOLS["oapi-codegen"],
            "-generate",
            "types,client",
            "-package",
            "muster",
            "-o",
            "oapi/client.go",
            document
          ],
          inModule,
          "300 seconds"
        )
        yield* runToEnd(
          [
            "go",
            "run",
            GO_TOOLS.ogen,
            "--config",
            "ogen.yml",
            "--target",
            "ogen",
            "--package",
            "muster",
            document
          ],
          inModule,
          "300 seconds"
        )
        yield* runToEnd(["go", "mod", "tidy"], inModule, "300 seconds")
        yield* runToEnd(["go", "vet", "./..."], inModule, "300 seconds")
      })
    )
  })

  describe.runIf(hasNpm)(`linters and types${named(hasNpm, "the npm registry")}`, slow, () => {
    it.effect("openapi-typescript makes types that compile; redocly and spectral find no error", () =>
      Effect.gen(function* () {
        const { api, folder } = yield* Described
        const tools = yield* temporaryFolder
        yield* writeFiles(tools, {
          "package.json": JSON.stringify({ private: true }),
          "spectral.yaml": 'extends: ["spectral:oas"]\n',
          "use.ts": `import type { components, operations } from "./muster.d.ts"
type Create = operations["servers.create"]
const server: Create["responses"]["202"]["content"]["application/json"] = {} as components["schemas"]["Server"]
const limit: number | undefined = ({} as NonNullable<operations["servers.list"]["parameters"]["query"]>).limit
const event = {} as components["schemas"]["ServerEvent"]
if (event.Topic === "crash") event.Data.payload.exit_code satisfies number
export { limit, server }
`
        })
        const inTools = { cwd: tools, env: { REDOCLY_TELEMETRY: "off" } }
        yield* runToEnd(
          ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", TYPES, ...LINTERS],
          inTools
        )
        const command = printed("docs/clients.md", "types").replace("http://127.0.0.1:5620", api.url)
        yield* runToEnd(["sh", "-e", "-c", command], inTools)
        yield* runToEnd(
          ["npx", "tsc", "--noEmit", "--strict", "--skipLibCheck", "--target", "es2022", "use.ts"],
          inTools
        )
        for (const name of ["openapi", "openapi-3.0"]) {
          const read = join(folder, `${name}.json`)
          yield* runToEnd(["npx", "redocly", "lint", read], inTools)
          // Its rule oas3-schema is the schema of OpenAPI documents.
          yield* runToEnd(["npx", "spectral", "lint", read, "-r", "spectral.yaml", "-D"], inTools)
        }
      })
    )
  })

  describe.runIf(hasPyPi)(`schemathesis${named(hasPyPi, "Python and PyPI")}`, slow, () => {
    it.effect("requests made from the document find no response that it does not describe", () =>
      Effect.gen(function* () {
        const { api, folder } = yield* Described
        const [node] = (yield* api.request("GET", "/api/nodes?ids_only=true")).json
        const server = yield* installed(api, "kept")
        yield* runToEnd(["python3", "-m", "venv", "python"], { cwd: folder })
        yield* runToEnd(["python/bin/pip", "install", "-q", "--no-compile", FUZZER], { cwd: folder })
        yield* writeFiles(folder, {
          // Ids that exist; an empty query parameter counts as absent.
          "schemathesis.toml": `
[parameters]
"path.server" = "${server}"
"path.node" = "${node}"
"path.blueprint" = "kept"
"path.software" = "game"

[[operations]]
include-name = [
  "GET /api/crashes",
  "GET /api/audit",
  "GET /api/backups",
  "GET /api/servers/{server}/backups",
  "POST /api/servers/{server}/files/uploads"
]
checks.negative_data_rejection.enabled = false
`
        })
        // The streams do not end, and the fuzzer would revoke its own key and remove the only node. Failed authentications are limited, 422 also
        // refuses what a schema cannot say, and GET .../reload reads the blueprint of that name.
        const output = yield* runToEnd(
          [
            "python/bin/schemathesis",
            "--config-file",
            "schemathesis.toml",
            "run",
            join(folder, "openapi.json"),
            "--url",
            api.url,
            "--header",
            `Authorization: Bearer ${api.key}`,
            "--exclude-path-regex",
            "/(events|console|ws)$",
            "--exclude-name",
            "DELETE /api/keys/{key}",
            "--exclude-name",
            "DELETE /api/nodes/{node}",
            "--exclude-checks",
            "missing_required_header,ignored_auth,positive_data_acceptance,allow_header_conformance",
            "--phases",
            "examples,coverage,fuzzing",
            "--max-examples",
            "10",
            "--no-shrink",
            "--generation-deterministic",
            "--request-timeout",
            "30"
          ],
          { cwd: folder },
          "600 seconds"
        )
        assert.match(output, /\d{4} generated, \d{4} passed/)
      })
    )
  })
})
