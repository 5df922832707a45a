import { join } from "node:path"
import { assert, describe, layer } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { runToEnd } from "../../support/child.ts"
import { writeFiles } from "../../support/definitions.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"
import {
  Described,
  described,
  generate,
  generators,
  hasGo,
  hasNpm,
  named,
  slow,
  TYPESCRIPT,
  works
} from "./support/generators.ts"

const hasPyPi = works("python3 -m pip download -q --no-deps -d /tmp/muster-test-wheels wheel")

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

/** The programs that install and compile the clients of Python and TypeScript, installed once. */
class Toolchain extends Context.Service<Toolchain, { readonly python: string; readonly tsc: string }>()(
  "test/Toolchain"
) {
  static readonly layer = Layer.effect(
    Toolchain,
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      const here = { cwd: folder }
      const python = join(folder, "venv/bin/python")
      if (hasPyPi) {
        yield* runToEnd(["python3", "-m", "venv", "venv"], here)
        // What the clients are built with: without it, pip installs it again for each of them.
        yield* runToEnd([python, "-m", "pip", "install", "-q", "--upgrade", "setuptools", "wheel"], here)
      }
      if (hasNpm) {
        yield* writeFiles(folder, { "package.json": JSON.stringify({ private: true }) })
        yield* runToEnd(["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", TYPESCRIPT], here)
      }
      return { python, tsc: join(folder, "node_modules/.bin/tsc") }
    })
  )
}

layer(Layer.merge(described, Toolchain.layer), { excludeTestServices: true, timeout: "600 seconds" })(
  "spec 1.10: /openapi.json",
  (it) => {
    describe.each(generators)("openapi-generator $version with /$document", (generator) => {
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
              const { python } = yield* Toolchain
              const client = yield* generate(generator, "python")
              const install = ["install", "-q", "--no-build-isolation", "."]
              yield* runToEnd([python, "-m", "pip", ...install], { cwd: client }, "300 seconds")
              yield* writeFiles(client, { "program.py": pythonProgram(api.url, api.key) })
              const output = yield* runToEnd([python, "program.py"], { cwd: client })
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
              const { tsc } = yield* Toolchain
              const client = yield* generate(
                generator,
                "typescript-fetch",
                "--additional-properties",
                "typescriptThreePlus=true"
              )
              yield* writeFiles(client, {
                "program.ts": typescriptProgram(api.url, api.key)
              })
              const options = "--strict --skipLibCheck --target es2022 --module commonjs --lib es2022,dom"
              yield* runToEnd([tsc, ...options.split(" "), "--outDir", "out", "program.ts"], {
                cwd: client
              })
              const output = yield* runToEnd(["node", "out/program.js"], { cwd: client })
              assert.strictEqual(output, "offline null\n404 true\n")
            })
        )
      })
    })
  }
)
