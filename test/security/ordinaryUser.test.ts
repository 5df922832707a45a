/** A service of an ordinary user, with its definitions, programs and secrets in the home of that user. */

import { spawn } from "node:child_process"
import { chmodSync, chownSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs"
import { join, resolve } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { until } from "../support/eventually.ts"
import { otherUsers } from "../support/otherUsers.ts"
import { adminKey, requestTo, stopped } from "../support/Service.ts"
import { temporaryFolderIn } from "../support/temporaryFolder.ts"

const ORDINARY = process.geteuid?.() === 0 ? 12_345 : (process.geteuid?.() ?? 0)
const main = resolve(import.meta.dirname, "../../src/main.ts")

const attack = (home: string, secret: string) => `
(echo x > ${home}/.profile; echo x > ${home}/blueprints/more.yml; echo x > ${home}/software/more.yml) 2>/dev/null
grep -c "a secret" ${home}/.netrc ${secret} 2>/dev/null | grep -v ":0" | sed "s/^/BREACH: reads /"
for fd in /proc/self/fd/*; do [ "\${fd##*/}" -gt 10 ] && echo "BREACH: has $fd"; done
node -e "console.log(6 * 7)" && echo works > own && cat own
echo ready; exec sleep 60`

describe.runIf(otherUsers.run)(`SECURITY: a service of an ordinary user${otherUsers.note}`, () => {
  it.live("a server cannot read the home of the service, change its programs or inherit its open files", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolderIn("/var/lib")
      const [home, secret] = [join(folder, "home"), join(folder, "secret")]
      const write = (path: string, text: string) => {
        writeFileSync(path, text)
        chownSync(path, ORDINARY, ORDINARY)
      }
      for (const path of [folder, home, join(home, "blueprints"), join(home, "software")]) {
        mkdirSync(path, { recursive: true })
        chownSync(path, ORDINARY, ORDINARY)
        chmodSync(path, 0o755)
      }
      write(join(home, ".netrc"), "a secret\n")
      write(secret, `a secret of more than thirty-two bytes, ${"x".repeat(40)}\n`)
      chmodSync(secret, 0o600)
      const install = `cat > run.sh <<'END'\n${attack(home, secret)}\nEND\n`
      const software = {
        id: "hostile",
        invocation: "sh run.sh",
        "online-signal": "ready",
        runtimes: ["process"]
      }
      write(
        join(home, "software/hostile.yml"),
        JSON.stringify({ software: { ...software, "install-script": { script: install } } })
      )
      const blueprint = { id: "hostile", name: "Hostile", type: "tool" }
      write(
        join(home, "blueprints/hostile.yml"),
        JSON.stringify({ blueprint, server: { software: "hostile", version: "1" }, save: true })
      )
      const as =
        process.geteuid?.() === 0
          ? ["setpriv", `--reuid=${ORDINARY}`, `--regid=${ORDINARY}`, "--clear-groups"]
          : []
      // A parent process that leaks an open file.
      const leaves = ["bash", "-c", 'exec 200< /etc/hostname; exec "$@"', "bash"]
      const [command = "", ...words] = [...leaves, ...as, process.execPath, main, "serve"]
      let output = ""
      const child = yield* Effect.acquireRelease(
        Effect.sync(() =>
          spawn(command, words, {
            cwd: home,
            env: {
              PATH: process.env.PATH,
              HOME: home,
              APP_ADMIN_API_KEY: adminKey,
              MUSTER_PORT: "0",
              MUSTER_DATA_DIR: join(home, "data"),
              MUSTER_SECRET_FILE: secret,
              MUSTER_EMBEDDED_RUNTIME: "process",
              MUSTER_EMBEDDED_ALLOCATIONS: "127.0.0.1:28000-28010"
            },
            stdio: ["ignore", "pipe", "pipe"]
          })
        ),
        stopped
      )
      for (const stream of [child.stdout, child.stderr]) {
        stream?.on("data", (bytes: Buffer) => {
          output += bytes.toString()
        })
      }
      yield* until("the service listens", () => output.includes("listens on") || child.exitCode !== null)
      const request = requestTo(/http:\/\/127\.0\.0\.1:\d+/.exec(output)?.[0] ?? output, adminKey)
      assert.include(output, "isolated by namespaces")
      const made = yield* request("POST", "/api/servers", {
        body: { blueprint_id: "hostile", start: true }
      })
      const path = `/api/servers/${made.json.id}`
      yield* Effect.repeat(request("GET", `${path}/status`), {
        until: ({ json }) => json.status === "running",
        times: 2000
      })
      const lines: ReadonlyArray<string> = (yield* request("GET", `${path}/logs`)).json.data
      assert.deepStrictEqual(lines.slice(0, 3), ["42", "works", "ready"])
      assert.deepStrictEqual(readdirSync(join(home, "blueprints")), ["hostile.yml"])
      assert.deepStrictEqual(readdirSync(join(home, "software")), ["hostile.yml"])
      assert.notInclude(readdirSync(home), ".profile")
      assert.include(readFileSync(secret, "utf8"), "a secret")
      yield* request("DELETE", path)
    }).pipe(Effect.scoped)
  )
})
