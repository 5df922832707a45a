import { createPrivateKey, X509Certificate } from "node:crypto"
import { readFile } from "node:fs/promises"
import { createSecureContext } from "node:tls"
import { Effect } from "effect"
import type { TlsOptions } from "../controlPlane/http/node/nodeServer.ts"
import { StartError } from "../shared/config/StartError.ts"
import { liveFiles } from "./reloading.ts"

const reasonOf = (cause: unknown) => (cause instanceof Error ? cause.message : String(cause))

/** Reads the file that a setting names, if it is set. */
const readFileOf = Effect.fnUntraced(function* (name: string, path: string) {
  if (path === "") return undefined
  return yield* Effect.tryPromise({
    try: () => readFile(path, "utf8"),
    catch: (cause) => new StartError({ message: `${name}: ${path} cannot be read (${reasonOf(cause)})` })
  })
})

/** Parses the texts of files; refuses other texts than PEM, also empty ones, which `createSecureContext` ignores. */
const usable = (names: string, parse: () => unknown) =>
  Effect.try({
    try: parse,
    catch: (cause) => new StartError({ message: `${names}: not usable in PEM (${reasonOf(cause)})` })
  })

const parseCa = (ca: string) => {
  new X509Certificate(ca)
  createSecureContext({ ca })
}

const parseTls = (tls: TlsOptions) => {
  new X509Certificate(tls.cert)
  createPrivateKey(tls.key)
  createSecureContext(tls)
}

/** Reads the certificates to trust, in PEM, if the setting is set; the default is the system's. */
const readCa = Effect.fnUntraced(function* (name: string, path: string) {
  const ca = yield* readFileOf(name, path)
  if (ca !== undefined) yield* usable(name, () => parseCa(ca))
  return ca
})

/** The settings or paths of a certificate's files. `clientCa` is for servers. */
interface TlsFiles {
  readonly cert: string
  readonly key: string
  readonly clientCa?: string
}

/** Reads the certificate and key of a server or client, if they are set. */
const readTls = Effect.fnUntraced(function* (names: TlsFiles, paths: TlsFiles) {
  const cert = yield* readFileOf(names.cert, paths.cert)
  const key = yield* readFileOf(names.key, paths.key)
  const clientCa = yield* readCa(names.clientCa ?? "", paths.clientCa ?? "")
  if (cert === undefined && key === undefined) {
    if (clientCa === undefined) return undefined
    return yield* new StartError({
      message: `${names.clientCa} is set and ${names.cert} is not: only HTTPS asks for certificates; set ${names.cert} and ${names.key}`
    })
  }
  if (cert === undefined || key === undefined) {
    const [set, unset] = cert === undefined ? [names.key, names.cert] : [names.cert, names.key]
    return yield* new StartError({ message: `${set} is set and ${unset} is not: set both` })
  }
  const tls: TlsOptions = { cert, key, ...(clientCa === undefined ? {} : { clientCa }) }
  yield* usable(`${names.cert}, ${names.key}`, () => parseTls(tls))
  return tls
})

/** Reads as {@link readCa}, and again when the file changes. */
export const liveCa = (name: string, path: string) =>
  path === ""
    ? Effect.succeed(undefined)
    : liveFiles({ names: name, paths: [path], read: Effect.map(readCa(name, path), (ca) => ca ?? "") })

/** Reads as {@link readTls}, and again when a file changes. */
export const liveTls = Effect.fnUntraced(function* (names: TlsFiles, paths: TlsFiles) {
  const first = yield* readTls(names, paths)
  if (first === undefined) return undefined
  return yield* liveFiles({
    names: [names.cert, names.key, ...(first.clientCa === undefined ? [] : [names.clientCa])].join(", "),
    paths: [paths.cert, paths.key, ...(first.clientCa === undefined ? [] : [paths.clientCa ?? ""])],
    read: Effect.map(readTls(names, paths), (tls) => tls ?? first)
  })
})
