/** The OpenAPI document in the hands of other programs: generators of clients, linters, a fuzzer. */
import { execFileSync } from "node:child_process"
import { join } from "node:path"
import { assert, describe, layer } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { runToEnd } from "../../support/child.ts"
import { writeFiles } from "../../support/definitions.ts"
import { printed } from "../../support/docs.ts"
import { Muster } from "../../support/Muster.ts"
import type { Service } from "../../support/Service.ts"
import { installed } from "../../support/servers.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"
import { service } from "./support/http.ts"

/**
 * The versions of openapi-generator, newest first, the document that each reads, and which of Go and Python
 * it supports. Version 6.6.0 makes a Python module without a name for the path `/`. Version 5.4.0 writes Go
 * that does not compile for a reference that may be null. Every version supports Java and TypeScript.
 */
const GENERATORS = [
  { version: "7.25.0", document: "openapi.json", go: true, python: true },
  { version: "7.25.0", document: "openapi-3.0.json", go: true, python: true },
  { version: "7.14.0", document: "openapi-3.0.json", go: true, python: true },
  { version: "6.6.0", document: "openapi-3.0.json", go: true, python: false },
  { version: "5.4.0", document: "openapi-3.0.json", go: false, python: true }
] as const
type Generator = (typeof GENERATORS)[number]
const GO_TOOLS = {
  "oapi-codegen": "github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2",
  ogen: "github.com/ogen-go/ogen/cmd/ogen@v1.24.0"
} as const
const TYPES = "openapi-typescript@7.13.0"
const TYPESCRIPT = "typescript@5.9.3"
const LINTERS = ["@redocly/cli@2.77.0", "@stoplight/spectral-cli@6.16.3", TYPESCRIPT]
const FUZZER = "schemathesis==4.32.5"

/** Generators and package managers take their time. */
const slow = { timeout: 600_000 }

/** Whether a command of the shell succeeds: a tool is installed, and its registry can be reached. */
const works = (command: string): boolean => {
  try {
    execFileSync("sh", ["-c", command], { stdio: "ignore", timeout: 120_000 })
    return true
  } catch {
    return false
  }
}

const jars = join("/tmp", "muster-test-generator")
const jarOf = ({ version }: Generator) => join(jars, version, "openapi-generator-cli.jar")
const copied = (generator: Generator): boolean =>
  works(
    `test -f ${jarOf(generator)} || mvn -q -B dependency:copy -Dartifact=org.openapitools:openapi-generator-cli:${generator.version} -DoutputDirectory=${join(jars, generator.version)} -Dmdep.stripVersion=true`
  )
const hasJava = works("javac -version")
/** The versions that the registry has. */
const generators = hasJava ? GENERATORS.filter(copied) : []
const hasGo = works("go version && go list -m -versions github.com/stretchr/testify")
const hasPyPi = works(`python3 -m pip download -q --no-deps -d /tmp/muster-test-wheels ${FUZZER}`)
const hasNpm = works(`npm view ${TYPES} version`)

/** A folder with the document of a running service. */
class Described extends Context.Service<Described, { readonly api: Service; readonly folder: string }>()(
  "test/Described"
) {
  static readonly layer = Layer.effect(
    Described,
    Effect.gen(function* () {
      const api = yield* Muster
      const folder = yield* temporaryFolder
      for (const name of ["openapi.json", "openapi-3.0.json"]) {
        const { text } = yield* api.request("GET", `/${name}`, { key: null })
        yield* writeFiles(folder, { [name]: text })
      }
      return { api, folder }
    })
  )
}

/** Generates a client into a folder of its own, and returns the folder. */
const generate = Effect.fnUntraced(function* (
  generator: Generator,
  language: string,
  ...options: ReadonlyArray<string>
) {
  const { folder } = yield* Described
  const target = join(yield* temporaryFolder, "client")
  yield* runToEnd(
    [
      "java",
      // Version 6 for Python reads fields of the JDK.
      "--add-opens=java.base/java.util=ALL-UNNAMED",
      "--add-opens=java.base/java.lang=ALL-UNNAMED",
      "-jar",
      jarOf(generator),
      "generate",
      "--input-spec",
      join(folder, generator.document),
      "--generator-name",
      language,
      "--output",
      target,
      "--global-property",
      "apiTests=false,modelTests=false,apis,models,supportingFiles",
      ...options
    ],
    { cwd: folder }
  )
  return target
})

const javaProgram = (connect: string) => `
import org.openapitools.client.*;
import org.openapitools.client.api.*;
import org.openapitools.client.model.*;
import java.util.List;

public class Program {
  public static void main(String[] args) throws Exception {
    ApiClient client = new ApiClient();
    ${connect}
    Node node = new NodesApi(client).nodesList().get(0);
    HostInfo host = new NodesApi(client).nodesSystem(node.getId()).getSystem();
    System.out.println(node.getId() + " has memory: " + (host.getMemoryBytes() > 1L << 30));
    ServersApi servers = new ServersApi(client);
    Overrides overrides = new Overrides().limits(new OverridesLimits().memoryLimit(64.0));
    CreateServer create = new CreateServer().blueprintId("kept").overrides(overrides).putLabelsItem("team", "a");
    Server server = servers.serversCreate(create, java.util.UUID.randomUUID().toString(), "wait=30", null);
    List<Server> found = servers.serversList(List.of("status", "labels"), null, node.getId(), null, List.of("team=a"), null, 10, null);
    System.out.println(found.get(0).getId().equals(server.getId()) + " " + found.get(0).getStatus());
    servers.serversPower(server.getId(), new PowerRequest().action(PowerRequest.ActionEnum.START));
    ServerStats stats = servers.serversStats(server.getId(), null);
    System.out.println(stats.getMemoryLimitBytes());
    try {
      servers.serversGet("nope", null, null, null);
    } catch (ApiException error) {
      System.out.println(error.getCode() + " " + error.getResponseBody().contains("server not found: nope"));
    }
    servers.serversRemove(server.getId(), true);
  }
}
`

const goProgram = (url: string, key: string) => `package main

import (
	"context"
	"fmt"
	muster "example.com/muster"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	configuration := muster.NewConfiguration()
	configuration.Servers = muster.ServerConfigurations{{URL: "${url}"}}
	client := muster.NewAPIClient(configuration)
	ctx := context.WithValue(context.Background(), muster.ContextAccessToken, "${key}")
	nodes, _, err := client.NodesAPI.NodesList(ctx).Execute()
	check(err)
	system, _, err := client.NodesAPI.NodesSystem(ctx, nodes[0].Id).Execute()
	check(err)
	fmt.Println("memory:", system.System.MemoryBytes > 1<<30)
	server, _, err := client.ServersAPI.ServersCreate(ctx).CreateServer(*muster.NewCreateServer("kept")).Prefer("wait=30").Execute()
	check(err)
	status, _, err := client.ServersAPI.ServersStatus(ctx, server.Id).Execute()
	check(err)
	fmt.Println(status.Status)
	_, err = client.ServersAPI.ServersRemove(ctx, server.Id).Execute()
	check(err)
}
`

const pythonProgram = (url: string, key: string) => `import json
import openapi_client
from openapi_client.api.servers_api import ServersApi
from openapi_client.models import CreateServer

configuration = openapi_client.Configuration(host="${url}", access_token="${key}")
with openapi_client.ApiClient(configuration) as client:
    servers = ServersApi(client)
    server = servers.servers_create(CreateServer(blueprint_id="kept"), prefer="wait=30")
    found = servers.servers_get(server.id, include=["status", "name"])
    print("offline" in str(found.status).lower())
    print(found.name is None)
    try:
        servers.servers_get("nope")
    except openapi_client.ApiException as error:
        print(error.status, json.loads(error.body)["detail"] == "server not found: nope")
    servers.servers_remove(server.id)
`

const typescriptProgram = (url: string, key: string) => `import { Configuration, ServersApi } from "./index"
const servers = new ServersApi(new Configuration({ basePath: "${url}", accessToken: "${key}" }))
const run = async () => {
  const { id } = await servers.serversCreate({ createServer: { blueprintId: "kept" }, prefer: "wait=30" })
  const server = await servers.serversGet({ server: id, include: ["status", "name"] as any })
  console.log(server.status, server.name ?? null)
  await servers.serversGet({ server: "nope" }).catch(async (error) => {
    const response: Response = error.response ?? error
    console.log(response.status, (await response.json()).detail === "server not found: nope")
  })
  await servers.serversRemove({ server: id, force: true })
}
run()
`

/** The output of {@link javaProgram} for a node. */
const printedOf = (node: string) => `${node} has memory: true\ntrue offline\n67108864\n404 true\n`

const java = Effect.fnUntraced(function* (
  generator: Generator,
  library: string,
  connect: (api: Service) => string
) {
  const { api } = yield* Described
  const client = yield* generate(generator, "java", "--library", library)
  yield* writeFiles(join(client, "src/main/java"), { "Program.java": javaProgram(connect(api)) })
  yield* runToEnd(
    ["mvn", "-q", "-B", "compile", "dependency:build-classpath", "-Dmdep.outputFile=classpath"],
    { cwd: client },
    "300 seconds"
  )
  const run = 'java -cp "target/classes:$(cat classpath)" Program'
  const output = yield* runToEnd(["sh", "-c", run], { cwd: client })
  const [node] = (yield* api.request("GET", "/api/nodes?ids_only=true")).json
  assert.strictEqual(output, printedOf(node))
})

const named = (has: boolean, what: string) => (has ? "" : ` (skipped: needs ${what})`)

layer(Described.layer.pipe(Layer.provideMerge(service())), {
  excludeTestServices: true,
  timeout: "600 seconds"
})("spec 1.10: /openapi.json", (it) => {
  const missing = GENERATORS.filter((generator) => !generators.includes(generator))
  if (missing.length > 0) {
    const versions = [...new Set(missing.map(({ version }) => version))].join(", ")
    const needs = named(false, "a JDK, Maven and its repository")
    it.effect.skip(`openapi-generator ${versions}${needs}`, () => Effect.void)
  }

  describe.each(generators)("openapi-generator $version with /$document", (generator) => {
    describe("Java", slow, () => {
      it.effect(
        "the client on java.net.http compiles, reads a node, creates, lists and starts a server",
        () =>
          java(generator, "native", ({ key, url }) => {
            const address = JSON.stringify(url)
            return `client.updateBaseUri(${address}); client.setRequestInterceptor(b -> b.header("Authorization", "Bearer ${key}"));`
          })
      )

      it.effect("so does the client on okhttp and gson", () =>
        java(
          generator,
          "okhttp-gson",
          ({ key, url }) => `client.setBasePath("${url}"); client.setBearerToken("${key}");`
        )
      )
    })

    if (generator.go)
      describe.runIf(hasGo)(`Go${named(hasGo, "Go and its module proxy")}`, slow, () => {
        it.effect("the client compiles, reads a node, creates a server and reads its status", () =>
          Effect.gen(function* () {
            const { api } = yield* Described
            const client = yield* generate(generator, "go", "--additional-properties", "packageName=muster")
            yield* runToEnd(["go", "mod", "edit", "-module", "example.com/muster"], { cwd: client })
            const program = goProgram(api.url, api.key)
            yield* writeFiles(client, {
              "program/main.go": generator.version.startsWith("6")
                ? program.replaceAll(/(Nodes|Servers)API/g, "$1Api")
                : program
            })
            yield* runToEnd(["go", "mod", "tidy"], { cwd: client })
            assert.strictEqual(
              yield* runToEnd(["go", "run", "./program"], { cwd: client }),
              "memory: true\noffline\n"
            )
          })
        )
      })

    if (generator.python)
      describe.runIf(hasPyPi)(`Python${named(hasPyPi, "Python and PyPI")}`, slow, () => {
        it.effect("the client imports, creates a server, reads a null and the body of an error", () =>
          Effect.gen(function* () {
            const { api } = yield* Described
            const client = yield* generate(generator, "python")
            yield* runToEnd(["python3", "-m", "venv", "venv"], { cwd: client })
            yield* runToEnd(["venv/bin/pip", "install", "-q", "."], { cwd: client }, "300 seconds")
            yield* writeFiles(client, { "program.py": pythonProgram(api.url, api.key) })
            const output = yield* runToEnd(["venv/bin/python", "program.py"], { cwd: client })
            assert.strictEqual(output, "True\nTrue\n404 True\n")
          })
        )
      })

    describe.runIf(hasNpm)(`TypeScript${named(hasNpm, "the npm registry")}`, slow, () => {
      it.effect(
        "the client for fetch compiles, creates a server, reads a null and the body of an error",
        () =>
          Effect.gen(function* () {
            const { api } = yield* Described
            const client = yield* generate(
              generator,
              "typescript-fetch",
              "--additional-properties",
              "typescriptThreePlus=true"
            )
            yield* writeFiles(client, {
              "package.json": JSON.stringify({ private: true }),
              "program.ts": typescriptProgram(api.url, api.key)
            })
            yield* runToEnd(["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", TYPESCRIPT], {
              cwd: client
            })
            const options = "--strict --skipLibCheck --target es2022 --module commonjs --lib es2022,dom"
            yield* runToEnd(["npx", "tsc", ...options.split(" "), "--outDir", "out", "program.ts"], {
              cwd: client
            })
            const output = yield* runToEnd(["node", "out/program.js"], { cwd: client })
            assert.strictEqual(output, "offline null\n404 true\n")
          })
      )
    })
  })

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
        yield* runToEnd(["python/bin/pip", "install", "-q", FUZZER], { cwd: folder })
        yield* writeFiles(folder, {
          // Ids that exist; an empty query parameter counts as absent.
          "schemathesis.toml": `
[parameters]
"path.server" = "${server}"
"path.node" = "${node}"
"path.blueprint" = "kept"
"path.software" = "game"

[[operations]]
include-name = ["GET /api/crashes", "GET /api/audit"]
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
            "25",
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
