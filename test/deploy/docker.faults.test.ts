import { cpSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { printed, root } from "../support/docs.ts"
import { eventually } from "../support/eventually.ts"
import { freePort } from "../support/nodes.ts"
import { freePorts } from "../support/ports.ts"
import { adminKey, requestTo } from "../support/Service.ts"
import { becomes, commands, create, expectStatus, logsHave, powered } from "../support/servers.ts"
import { temporaryFolderIn } from "../support/temporaryFolder.ts"
import { Images, imagesNote, MUSTER_IMAGE, NODE_IMAGE, OTHER_IMAGE, withImages } from "./images.ts"

/** The user of the image. */
const MUSTER_UID = 5620

/** Creates a server, uses its console and deletes it. */
const serverLives = Effect.fnUntraced(function* (api: { readonly request: ReturnType<typeof requestTo> }) {
  const id = yield* create(api, "demo-saved", { start: true })
  yield* becomes(api, id, "running")
  yield* commands(api, id, "say hello")
  yield* logsHave(api, id, "[Server] hello")
  return id
})

/** A folder with `deploy`, as in a checkout. */
const checkout = Effect.gen(function* () {
  const folder = yield* temporaryFolderIn("/tmp", 0o711)
  cpSync(join(root, "deploy"), join(folder, "deploy"), { recursive: true })
  return folder
})

describe.runIf(withImages)(`deploy: Docker${imagesNote}`, () => {
  layer(Images.layer(printed("docs/deployment.md", "build")), {
    timeout: "15 minutes",
    excludeTestServices: true
  })((it) => {
    const healthy = (name: string) =>
      Effect.gen(function* () {
        const { docker } = yield* Images
        yield* eventually(
          docker("inspect", "--format", "{{.State.Health.Status}}", name),
          (status) => status.trim() === "healthy",
          "60 seconds"
        )
      })

    it.effect(
      "Dockerfile: the image runs without root, capabilities and a writable file system, becomes healthy, runs a server, and ends in order",
      () =>
        Effect.gen(function* () {
          const { docker } = yield* Images
          const name = `muster-test-${process.pid}`
          const port = yield* freePort
          yield* Effect.addFinalizer(() => Effect.ignore(docker("rm", "--force", "--volumes", name)))
          const locked = ["--init", "--read-only", "--tmpfs=/tmp", "--cap-drop=ALL"]
          yield* docker(
            ...["run", "--detach", `--name=${name}`, ...locked, "--security-opt=no-new-privileges"],
            ...[`--env=APP_ADMIN_API_KEY=${adminKey}`, `--publish=127.0.0.1:${port}:5620`, MUSTER_IMAGE]
          )
          yield* healthy(name)
          assert.strictEqual((yield* docker("exec", name, "id", "-u")).trim(), String(MUSTER_UID))
          const api = { request: requestTo(`http://127.0.0.1:${port}`, adminKey) }
          yield* serverLives(api)
          const key = (yield* docker("exec", name, "muster", "keys", "create", "--name", "second")).trim()
          yield* expectStatus(
            { request: requestTo(`http://127.0.0.1:${port}`, key) },
            200,
            "GET",
            "/api/keys"
          )
          yield* docker("stop", "--time=60", name)
          assert.match(yield* docker("logs", name), /the service has ended\n$/)
          assert.strictEqual((yield* docker("inspect", "--format", "{{.State.ExitCode}}", name)).trim(), "0")
        }).pipe(Effect.scoped),
      120_000
    )

    it.effect(
      "docs/deployment.md, compose.yaml: servers have uids of their own, and saved ones survive the upgrade of the container",
      () =>
        Effect.gen(function* () {
          const { shell } = yield* Images
          const folder = yield* checkout
          const port = yield* freePort
          const first = yield* freePorts(4)
          const env = {
            COMPOSE_PROJECT_NAME: `mustersingle${process.pid}`,
            MUSTER_IMAGE,
            MUSTER_PORT: String(port)
          }
          const compose = (line: string) =>
            shell(`docker-compose -f deploy/compose.yaml ${line}`, folder, env)
          yield* Effect.addFinalizer(() => Effect.ignore(compose("down --volumes")))
          const up = printed("docs/deployment.md", "single").replace(
            "192.168.1.20:25565-25664",
            `127.0.0.1:${first}-${first + 3}`
          )
          const [start = "", show = ""] = up.trim().split("\n")
          const started = Effect.gen(function* () {
            yield* shell(start, folder, env)
            yield* healthy((yield* compose("ps --quiet muster")).trim())
          })
          yield* started
          const key = (yield* shell(show, folder, env)).trim()
          const api = { request: requestTo(`http://127.0.0.1:${port}`, key) }
          const id = yield* serverLives(api)
          const [node] = (yield* expectStatus(api, 200, "GET", "/api/nodes")).json
          const { json } = yield* expectStatus(api, 200, "GET", `/api/nodes/${node.id}/system`)
          assert.strictEqual(json.system.isolation.process, "user")
          const owned = "find /var/lib/muster/data/node -uid +69999 -printf '%U\n' | sort -u"
          const uids = (yield* compose(`exec -T muster sh -ec ${JSON.stringify(owned)}`)).trim().split("\n")
          assert.isNotEmpty(uids)
          for (const uid of uids) assert.isAtLeast(Number(uid), 80_000)
          yield* compose("stop")
          yield* compose("rm --force")
          yield* started
          yield* powered(api, id, "start")
          yield* becomes(api, id, "running")
        }).pipe(Effect.scoped),
      180_000
    )

    it.effect(
      "docs/deployment.md, compose.ha.yaml: two replicas, PostgreSQL, Caddy and a node run a server, also while a replica is down",
      () =>
        Effect.gen(function* () {
          const { shell } = yield* Images
          const folder = yield* checkout
          const first = yield* freePorts(4)
          // The address of Caddy in the file: also the node reaches it there.
          const site = "http://172.30.56.10"
          const env = {
            COMPOSE_PROJECT_NAME: `musterha${process.pid}`,
            MUSTER_IMAGE,
            POSTGRES_IMAGE: OTHER_IMAGE,
            CADDY_IMAGE: OTHER_IMAGE,
            HTTP_PORT: String(yield* freePort),
            HTTPS_PORT: String(yield* freePort),
            MUSTER_SITE: site
          }
          const compose = (line: string) =>
            shell(`docker-compose -f deploy/compose.ha.yaml --profile node ${line}`, folder, env)
          yield* Effect.addFinalizer(() => Effect.ignore(compose("down --volumes")))
          const idOf = (name: string) => Effect.map(compose(`ps --quiet ${name}`), (id) => id.trim())
          yield* shell(printed("docs/deployment.md", "secrets"), folder, env)
          const output = yield* shell(
            printed("docs/deployment.md", "ha")
              .replace("https://muster.example.com", site)
              .replace("192.168.1.20:25565-25664", `127.0.0.1:${first}-${first + 3}`),
            folder,
            env
          )
          const api = { request: requestTo(site, /mst_\w+/.exec(output)?.[0] ?? "") }
          yield* eventually(
            api.request("GET", "/api/nodes"),
            ({ json }) => json?.[0]?.name === "node-1",
            "60 seconds"
          )
          const [{ id: node }] = (yield* expectStatus(api, 200, "GET", "/api/nodes")).json
          yield* eventually(
            api.request("GET", `/api/nodes/${node}`),
            ({ json }) => json.connected && json.unreachable === undefined
          )
          yield* healthy(yield* idOf("node"))
          yield* serverLives(api)
          for (const replica of ["muster-1", "muster-2"]) {
            yield* compose(`stop ${replica}`)
            yield* serverLives(api)
            yield* compose(`start ${replica}`)
            yield* healthy(yield* idOf(replica))
          }
        }).pipe(Effect.scoped),
      300_000
    )

    it.effect(
      "docs/deployment.md, Install with systemd: as printed, the settings are readable for root only",
      () =>
        Effect.gen(function* () {
          const { docker } = yield* Images
          const script = [
            "mkdir -p /etc/systemd/system",
            printed("docs/deployment.md", "units"),
            "stat -c '%a %U' /etc/muster/muster.env /etc/muster/node.env",
            "ls /etc/systemd/system/muster*.service | wc -l",
            "getent passwd muster"
          ].join("\n")
          const mount = `${join(root, "deploy")}:/opt/muster/node_modules/muster/deploy:ro`
          const output = yield* docker("run", "--rm", "--volume", mount, NODE_IMAGE, "bash", "-ec", script)
          assert.match(
            output,
            /^600 root\n600 root\n3\nmuster:x:\d+:\d+::\/var\/lib\/muster:\/usr\/sbin\/nologin\n$/
          )
        })
    )
  })
})
