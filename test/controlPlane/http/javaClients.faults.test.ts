import { join } from "node:path"
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { runToEnd } from "../../support/child.ts"
import { writeFiles } from "../../support/definitions.ts"
import type { Service } from "../../support/Service.ts"
import {
  Described,
  described,
  GENERATORS,
  type Generator,
  generate,
  generators,
  JAVA_OPTIONS,
  named,
  slow
} from "./support/generators.ts"

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
    List<Server> found = servers.serversList(null, List.of("status", "labels"), null, node.getId(), null, List.of("team=a"), null, 10, null);
    System.out.println(found.get(0).getId().equals(server.getId()) + " " + found.get(0).getStatus());
    servers.serversPower(server.getId(), new PowerRequest().action(PowerRequest.ActionEnum.START));
    ServerStats stats = servers.serversStats(server.getId(), null);
    System.out.println(stats.getMemoryLimitBytes());
    try {
      servers.serversGet("nope", null, null, null);
    } catch (ApiException error) {
      System.out.println(error.getCode() + " " + error.getResponseBody().contains("server not found: nope"));
    }
    servers.serversRemove(server.getId(), true, null);
  }
}
`

/** How a client of each library gets the address and the key. */
const connect: Record<Generator["java"], (api: Service) => string> = {
  native: ({ key, url }) =>
    `client.updateBaseUri(${JSON.stringify(url)}); client.setRequestInterceptor(b -> b.header("Authorization", "Bearer ${key}"));`,
  "okhttp-gson": ({ key, url }) => `client.setBasePath("${url}"); client.setBearerToken("${key}");`
}

/** The output of {@link javaProgram} for a node. */
const printedOf = (node: string) => `${node} has memory: true\ntrue offline\n67108864\n404 true\n`

const java = Effect.fnUntraced(function* (generator: Generator) {
  const { api } = yield* Described
  const client = yield* generate(generator, "java", "--library", generator.java)
  yield* writeFiles(join(client, "src/main/java"), {
    "Program.java": javaProgram(connect[generator.java](api))
  })
  yield* runToEnd(
    ["mvn", "-q", "-B", "compile", "dependency:build-classpath", "-Dmdep.outputFile=classpath"],
    { cwd: client, env: { MAVEN_OPTS: JAVA_OPTIONS.join(" ") } },
    "300 seconds"
  )
  const run = 'java -cp "target/classes:$(cat classpath)" Program'
  const output = yield* runToEnd(["sh", "-c", run], { cwd: client })
  const [node] = (yield* api.request("GET", "/api/nodes?ids_only=true")).json
  assert.strictEqual(output, printedOf(node))
})

layer(described, { excludeTestServices: true, timeout: "600 seconds" })("spec 1.10: /openapi.json", (it) => {
  const missing = GENERATORS.filter((generator) => !generators.includes(generator))
  if (missing.length > 0) {
    const versions = [...new Set(missing.map(({ version }) => version))].join(", ")
    const needs = named(false, "a JDK, Maven and its repository")
    it.effect.skip(`openapi-generator ${versions}${needs}`, () => Effect.void)
  }

  it.effect.each(generators)(
    "openapi-generator $version with /$document: the Java client on $java compiles, reads a node, creates, lists and starts a server",
    java,
    slow.timeout
  )
})
