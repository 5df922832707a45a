/** A registry on 127.0.0.1 with one image; engines use it without TLS. */
import { execFileSync } from "node:child_process"
import { createHash } from "node:crypto"
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs"
import { createServer } from "node:http"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { gzipSync } from "node:zlib"
import { Effect } from "effect"

const digestOf = (data: Buffer) => `sha256:${createHash("sha256").update(data).digest("hex")}`
const MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"

const busybox = ["/bin/busybox", "/usr/bin/busybox"].find((path) => existsSync(path))

const tarOf = (text: string): Buffer => {
  const folder = mkdtempSync(join(tmpdir(), "muster-layer-"))
  writeFileSync(join(folder, "made"), text)
  for (const name of ["bin", "tmp", "proc", "sys", "dev", "etc", "home"]) mkdirSync(join(folder, name))
  if (busybox !== undefined) {
    copyFileSync(busybox, join(folder, "bin", "busybox"))
    for (const name of ["sh", "sleep", "cat", "touch"]) symlinkSync("busybox", join(folder, "bin", name))
  }
  const tar = execFileSync("tar", ["-C", folder, "-cf", "-", "."], { maxBuffer: 64 * 1024 * 1024 })
  rmSync(folder, { recursive: true })
  return tar
}

/** An image with a shell and a file, `made`; each text gives another image. */
const imageOf = (text: string) => {
  const tar = tarOf(text)
  const layer = gzipSync(tar)
  const config = Buffer.from(
    JSON.stringify({
      architecture: process.arch === "arm64" ? "arm64" : "amd64",
      os: "linux",
      config: {},
      rootfs: { type: "layers", diff_ids: [digestOf(tar)] }
    })
  )
  const blob = (mediaType: string, data: Buffer) => ({ mediaType, size: data.length, digest: digestOf(data) })
  const manifest = Buffer.from(
    JSON.stringify({
      schemaVersion: 2,
      mediaType: MANIFEST,
      config: blob("application/vnd.docker.container.image.v1+json", config),
      layers: [blob("application/vnd.docker.image.rootfs.diff.tar.gzip", layer)]
    })
  )
  return { manifest, blobs: new Map([layer, config].map((data) => [digestOf(data), data])) }
}

export interface RegistryOptions {
  /** Credentials for a pull; without them anyone may pull. */
  readonly user?: { readonly name: string; readonly password: string }
}

/** Serves `<host>/test/image:1` until the scope ends. */
export const imageRegistry = Effect.fnUntraced(function* (options: RegistryOptions = {}) {
  let image = imageOf("first")
  let pulls = 0
  let held = false
  const waiting: Array<() => void> = []
  const { user } = options
  const basic =
    user === undefined
      ? undefined
      : `Basic ${Buffer.from(`${user.name}:${user.password}`).toString("base64")}`
  const server = yield* Effect.acquireRelease(
    Effect.callback<ReturnType<typeof createServer>>((resume) => {
      const made = createServer((request, response) => {
        const { url = "" } = request
        const send = (data: Buffer, type: string) => {
          response.writeHead(200, {
            "content-type": type,
            "content-length": data.length,
            "docker-content-digest": digestOf(data)
          })
          response.end(request.method === "HEAD" ? undefined : data)
        }
        if (basic !== undefined && request.headers.authorization !== basic) {
          const challenge = { "www-authenticate": 'Basic realm="test"', "content-type": "application/json" }
          const errors = [{ code: "UNAUTHORIZED", message: "authentication required" }]
          return response.writeHead(401, challenge).end(JSON.stringify({ errors }))
        }
        if (url === "/v2/") return send(Buffer.from("{}"), "application/json")
        if (url.includes("/manifests/")) {
          if (url.endsWith("/1")) pulls++
          return send(image.manifest, MANIFEST)
        }
        const blob = image.blobs.get(url.slice(url.lastIndexOf("/") + 1))
        if (blob !== undefined) {
          const answer = () => send(blob, "application/octet-stream")
          return held ? waiting.push(answer) : answer()
        }
        response.writeHead(404).end()
      })
      made.listen(0, "127.0.0.1", () => resume(Effect.succeed(made)))
    }),
    (made) =>
      Effect.sync(() => {
        made.closeAllConnections()
        made.close()
      })
  )
  const address = server.address()
  const port = typeof address === "object" && address !== null ? address.port : 0
  return {
    image: `127.0.0.1:${port}/test/image:1`,
    /** The number of requests for the tag. */
    pulls: () => pulls,
    /** Withholds the contents of layers until it is released. */
    hold: () => {
      held = true
    },
    /** The number of waiting downloads. */
    waiting: () => waiting.length,
    release: () => {
      held = false
      for (const answer of waiting.splice(0)) answer()
    },
    /** Points the tag to another image. */
    publish: (text: string) => {
      image = imageOf(text)
    },
    close: Effect.sync(() => {
      server.closeAllConnections()
      server.close()
    })
  }
})
