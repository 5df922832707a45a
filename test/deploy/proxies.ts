/** The proxies of `deploy/proxy`, started with their files as they are but for addresses and certificates. */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs"
import { join, resolve } from "node:path"
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { startChild } from "../support/child.ts"
import { debianProgram } from "../support/debianPrograms.ts"
import { eventually } from "../support/eventually.ts"
import { freePort } from "../support/nodes.ts"
import { requestTo } from "../support/Service.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"

const root = resolve(import.meta.dirname, "../..")
const tls = join(root, "test/support/tls")

export const caddyProgram = debianProgram("caddy", "caddy")
export const nginxProgram = debianProgram("nginx", "nginx")

/** Replaces a text that the file has exactly once. */
const once = (text: string, from: string, to: string) => {
  assert.lengthOf(text.split(from), 2, from)
  return text.replace(from, () => to)
}

/** Waits until the proxy forwards, and returns its address. */
const forwarding = (url: string) =>
  eventually(
    Effect.orElseSucceed(
      Effect.map(requestTo(url, "")("GET", "/readyz"), ({ status }) => status),
      () => 0
    ),
    (status) => status === 200
  ).pipe(Effect.as(url))

const addresses = (replicas: ReadonlyArray<string>) => replicas.map((url) => new URL(url).host)

/** Starts Caddy in front of replicas; plain HTTP, because no authority is in reach. */
export const startCaddy = Effect.fnUntraced(function* (replicas: ReadonlyArray<string>) {
  const folder = yield* temporaryFolder
  const url = `http://127.0.0.1:${yield* freePort}`
  yield* startChild(
    [caddyProgram.path, "run", "--adapter", "caddyfile", "--config", join(root, "deploy/proxy/Caddyfile")],
    {
      cwd: folder,
      env: { HOME: folder, MUSTER_SITE: url, MUSTER_REPLICAS: addresses(replicas).join(" ") }
    }
  )
  return { url: yield* forwarding(url) }
})

/** Starts nginx in front of replicas, with TLS on `secure` and plain HTTP on `url`. */
export const startNginx = Effect.fnUntraced(function* (replicas: ReadonlyArray<string>) {
  const folder = yield* temporaryFolder
  const [plain, secure, redirect] = [yield* freePort, yield* freePort, yield* freePort]
  const servers = addresses(replicas).map((address) => `server ${address} max_fails=1 fail_timeout=5s;`)
  let site = readFileSync(join(root, "deploy/proxy/nginx.conf"), "utf8")
  site = once(site, "server 127.0.0.1:5620 max_fails=1 fail_timeout=5s;", servers.join("\n"))
  site = once(
    site,
    "listen 443 ssl http2;",
    `listen 127.0.0.1:${secure} ssl http2; listen 127.0.0.1:${plain};`
  )
  site = once(site, "listen 80;", `listen 127.0.0.1:${redirect};`)
  site = once(site, "/etc/nginx/muster.pem", join(tls, "cert.pem"))
  site = once(site, "/etc/nginx/muster-key.pem", join(tls, "key.pem"))
  writeFileSync(join(folder, "muster.conf"), site)
  mkdirSync(join(folder, "temporary"))
  const paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
    .map((name) => `${name}_temp_path ${folder}/temporary/${name};`)
    .join(" ")
  writeFileSync(
    join(folder, "nginx.conf"),
    `user root; worker_processes 1; pid ${folder}/pid; error_log stderr warn;
     events { worker_connections 1024; } http { access_log off; ${paths} include ${folder}/muster.conf; }`
  )
  yield* startChild([nginxProgram.path, "-g", "daemon off;", "-c", join(folder, "nginx.conf")], {
    cwd: folder
  })
  return {
    url: yield* forwarding(`http://127.0.0.1:${plain}`),
    secure: `https://127.0.0.1:${secure}`,
    redirect: `http://127.0.0.1:${redirect}`
  }
})
