/** Clients of resumable uploads: whole requests, and requests with many bytes that can be cut. */
import { createHash, randomBytes } from "node:crypto"
import { createReadStream, readdirSync } from "node:fs"
import { request } from "node:http"
import { pipeline } from "node:stream/promises"
import { Effect } from "effect"
import { eventually } from "../../../support/eventually.ts"
import type { Service } from "../../../support/Service.ts"

export const version = { "tus-resumable": "1.0.0" }

export const base64 = (text: string) => Buffer.from(text).toString("base64")

export const metadataOf = (given: Readonly<Record<string, string>>) =>
  Object.entries(given)
    .map(([name, value]) => `${name} ${base64(value)}`)
    .join(",")

type Api = Pick<Service, "url" | "key" | "request">

/** The routes of uploads to a server. */
export const uploadsOf = (api: Api, id: string) => {
  const base = `/api/servers/${id}/files/uploads`
  return {
    base,
    create: (metadata: Record<string, string>, length: number, headers = {}, raw = "") =>
      api.request("POST", base, {
        raw,
        headers: {
          ...version,
          "upload-length": String(length),
          "upload-metadata": metadataOf(metadata),
          ...headers
        }
      }),
    head: (path: string, headers: Record<string, string> = version) => api.request("HEAD", path, { headers }),
    patch: (path: string, offset: number, raw: string, headers = {}) =>
      api.request("PATCH", path, {
        raw,
        headers: {
          ...version,
          "content-type": "application/offset+octet-stream",
          "upload-offset": String(offset),
          ...headers
        }
      }),
    end: (path: string) => api.request("DELETE", path, { headers: version })
  }
}

export const locationOf = ({ headers }: { readonly headers: Headers }) => headers.get("location") ?? ""

const MIB = 2 ** 20

/** A file of pieces of 1 MiB that all differ, and its SHA-256. */
export const makeLarge = (mebibytes: number) => {
  const seed = randomBytes(MIB)
  const piece = (index: number) => {
    const bytes = Buffer.from(seed)
    bytes.writeUInt32LE(index, 0)
    return bytes
  }
  const hash = createHash("sha256")
  for (let index = 0; index < mebibytes; index += 1) hash.update(piece(index))
  return {
    size: mebibytes * MIB,
    sha256: hash.digest("hex"),
    /** Returns the bytes from `offset` to the end of its piece. */
    from: (offset: number) => piece(Math.floor(offset / MIB)).subarray(offset % MIB)
  }
}

export type Large = ReturnType<typeof makeLarge>

export const sha256Of = (path: string) =>
  Effect.promise(() => {
    const hash = createHash("sha256")
    return pipeline(createReadStream(path), hash).then(() => hash.digest("hex"))
  })

/** Returns the temporary files below a folder. */
export const temporaryFiles = (folder: string) =>
  readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((name) => name.includes(".muster-"))

/** The end of a request that sends bytes of an upload. */
export interface Sent {
  /** Unset if the connection ended before a response. */
  readonly status: number | undefined
  readonly text: string
  /** Bytes that the connection has taken. */
  readonly bytes: number
}

/**
 * Sends the rest of an upload from `offset` over its own connection.
 * @param stop.after bytes after which no more are sent. `stop.act` runs; without it, the connection is destroyed
 */
export const sendRest = (
  { key, url }: Pick<Service, "url" | "key">,
  path: string,
  { file, offset }: { readonly file: Large; readonly offset: number },
  stop?: { readonly after: number; readonly act?: () => void }
): Effect.Effect<Sent> =>
  Effect.callback<Sent>((resume) => {
    let at = offset
    let isStopped = false
    const sent = request(`${url}${path}`, {
      method: "PATCH",
      agent: false,
      headers: {
        ...version,
        authorization: `Bearer ${key}`,
        "content-type": "application/offset+octet-stream",
        "content-length": file.size - offset,
        "upload-offset": offset
      }
    })
    const done = (status: number | undefined, text: string) =>
      resume(Effect.succeed({ status, text, bytes: at - offset }))
    sent.on("response", (response) => {
      let text = ""
      response.setEncoding("utf8").on("data", (piece: string) => {
        text += piece
      })
      response.on("error", () => done(response.statusCode, text))
      response.on("end", () => done(response.statusCode, text))
    })
    sent.on("error", () => done(undefined, ""))
    const write = () => {
      while (at < file.size && !isStopped) {
        if (stop !== undefined && at - offset >= stop.after) {
          isStopped = true
          if (stop.act === undefined) sent.destroy()
          else stop.act()
          return
        }
        const piece = file.from(at)
        at += piece.length
        if (!sent.write(piece)) return void sent.once("drain", write)
      }
      if (!isStopped) sent.end()
    }
    write()
    return Effect.sync(() => sent.destroy())
  })

/** Returns the offset of an upload, once the service and the node of the server respond. */
export const offsetOf = (api: Api, path: string) =>
  eventually(
    api
      .request("HEAD", path, { headers: version })
      .pipe(Effect.catchTag("ServiceFailed", () => Effect.succeed(undefined))),
    (head) => head?.status === 200
  ).pipe(Effect.map((head) => Number(head?.headers.get("upload-offset"))))

/** Continues an upload where the service says, as clients do: again while an earlier request has not ended. */
export const continued = Effect.fnUntraced(function* (
  api: Api,
  path: string,
  file: Large,
  stop?: { readonly after: number; readonly act?: () => void }
) {
  while (true) {
    const offset = yield* offsetOf(api, path)
    const sent = yield* sendRest(api, path, { file, offset }, stop)
    if (sent.status !== 409 && sent.status !== 423) return { ...sent, offset }
  }
})
