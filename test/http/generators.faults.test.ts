/** The OpenAPI document in the hands of other programs: generators of clients, linters, a fuzzer. */
import { execFileSync } from "node:child_process"
import { join } from "node:path"
import { assert, describe, layer } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { runToEnd } from "../support/child.ts"
import { writeFiles } from "../support/definitions.ts"
import { printed } from "../support/docs.ts"
import { Muster } from "../support/Muster.ts"
import type { Service } from "../support/Service.ts"
import { installed } from "../support/servers.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"
import { service } from "./support/http.ts"

const GENERATOR = "org.openapitools:openapi-generator-cli:7.25.0"
const TYPES = "openapi-typescript@7.13.0"
const LINTERS = ["@redocly/cli@2.77.0", "@stoplight/spectral-cli@6.16.3", "typescript@5.9.3"]
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

const jar = join("/tmp", "muster-test-generator")
const hasJava =
  works("javac -version") &&
  works(`mvn -q -B dependency:copy -Dartifact=${GENERATOR} -DoutputDirectory=${jar} -Dmdep.stripVersion=true`)
const hasGo = hasJava && works("go version && go list -m -versions github.com/stretchr/testify")
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
      const { text } = yield* api.request("GET", "/openapi.json", { key: null })
      yield* writeFiles(folder, { "openapi.json": text })
      return { api, folder }
    })
  )
}

/** Generates a client into a folder of its own, and returns the folder. */
const generate = Effect.fnUntraced(function* (generator: string, ...options: ReadonlyArray<string>) {
  const { folder } = yield* Described
  const target = join(yield* temporaryFolder, "client")
  yield* runToEnd(
    [
      "java",
      "-jar",
      join(jar, "openapi-generator-cli.jar"),
      "generate",
      "--input-spec",
      join(folder, "openapi.json"),
      "--generator-name",
      generator,
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

/** The output of {@link javaProgram} for a node. */
const printedOf = (node: string) => `${node} has memory: true\ntrue offline\n67108864\n404 true\n`

const java = Effect.fnUntraced(function* (library: string, connect: (api: Service) => string) {
  const { api } = yield* Described
  const client = yield* generate("java", "--library", library)
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
})("decisions 7: /openapi.json", (it) => {
  describe.runIf(hasJava)(
    `openapi-generator, Java${named(hasJava, "a JDK, Maven and its repository")}`,
    slow,
    () => {
      it.effect(
        "the client on java.net.http compiles, reads a node, creates, lists and starts a server",
        () =>
          java("native", ({ key, url }) => {
            const address = JSON.stringify(url)
            return `client.updateBaseUri(${address}); client.setRequestInterceptor(b -> b.header("Authorization", "Bearer ${key}"));`
          })
      )

      it.effect("so does the client on okhttp and gson", () =>
        java(
          "okhttp-gson",
          ({ key, url }) => `client.setBasePath("${url}"); client.setBearerToken("${key}");`
        )
      )
    }
  )

  describe.runIf(hasGo)(`openapi-generator, Go${named(hasGo, "Java, Go and its module proxy")}`, slow, () => {
    it.effect("the client compiles, reads a node, creates a server and reads its status", () =>
      Effect.gen(function* () {
        const { api } = yield* Described
        const client = yield* generate("go", "--additional-properties", "packageName=muster")
        yield* runToEnd(["go", "mod", "edit", "-module", "example.com/muster"], { cwd: client })
        yield* writeFiles(client, { "program/main.go": goProgram(api.url, api.key) })
        yield* runToEnd(["go", "mod", "tidy"], { cwd: client })
        assert.strictEqual(
          yield* runToEnd(["go", "run", "./program"], { cwd: client }),
          "memory: true\noffline\n"
        )
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
          "ruleset.yaml": 'extends: ["spectral:oas"]\n',
          "use.ts": `import type { components, operations } from "./muster.d.ts"
type Create = operations["servers.create"]
const server: Create["responses"]["202"]["content"]["application/json"] = {} as components["schemas"]["Server"]
const limit: number | undefined = ({} as NonNullable<operations["servers.list"]["parameters"]["query"]>).limit
const event = {} as components["schemas"]["ServerEvent"]
if (event.Topic === "crash") event.Data.payload.exit_code satisfies number
export { limit, server }
`
        })
        const document = join(folder, "openapi.json")
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
        yield* runToEnd(["npx", "redocly", "lint", document], inTools)
        yield* runToEnd(["npx", "spectral", "lint", document, "-r", "ruleset.yaml", "-D"], inTools)
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
