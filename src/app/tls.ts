import { createPrivateKey, X509Certificate } from "node:crypto"
import { readFile } from "node:fs/promises"
import { createSecureContext } from "node:tls"
import { Effect } from "effect"
import { StartError } from "../config/StartError.ts"
import type { TlsOptions } from "../http/nodeServer.ts"
import { liveFiles } from "./liveFiles.ts"

const reasonOf = (cause: unknown) => (cause instanceof Error ? cause.message : String(cause))

/** Text of the file that a setting names; undefined when it names none. */
export const readFileOf = Effect.fnUntraced(function* (name: string, path: string) {
  if (path === "") return undefined
  return yield* Effect.tryPromise({
    try: () => readFile(path, "utf8"),
    catch: (cause) => new StartError({ message: `${name}: ${path} cannot be read (${reasonOf(cause)})` })
  })
})

/** Whether the texts are usable. `createSecureContext` ignores an empty one, so each is parsed by itself, too. */
const checked = (options: { readonly ca?: string } | TlsOptions, names: string) =>
  Effect.try({
    try: () => {
      if ("cert" in options) {
        new X509Certificate(options.cert)
        createPrivateKey(options.key)
      } else if (options.ca !== undefined) new X509Certificate(options.ca)
      return createSecureContext(options)
    },
    catch: (cause) => new StartError({ message: `${names}: not usable in PEM (${reasonOf(cause)})` })
  })

/** Certificates to trust, in PEM; undefined: those of the system. */
const readCa = Effect.fnUntraced(function* (name: string, path: string) {
  const ca = yield* readFileOf(name, path)
  if (ca !== undefined) yield* checked({ ca }, name)
  return ca
})

/** What each file of a certificate is: a setting's name, or a path. `clientCa` is for servers. */
interface TlsFiles {
  readonly cert: string
  readonly key: string
  readonly clientCa?: string
}

/** Authorities of client certificates; without one that can be parsed, nobody could connect. */
const readClientCa = Effect.fnUntraced(function* (name: string, path: string) {
  const clientCa = yield* readFileOf(name, path)
  if (clientCa === undefined) return {}
  yield* Effect.try({
    try: () => new X509Certificate(clientCa),
    catch: (cause) => new StartError({ message: `${name}: not usable in PEM (${reasonOf(cause)})` })
  })
  return { clientCa }
})

/** Certificate and key of a server or client; undefined when neither is set. */
const readTls = Effect.fnUntraced(function* (names: TlsFiles, paths: TlsFiles) {
  const cert = yield* readFileOf(names.cert, paths.cert)
  const key = yield* readFileOf(names.key, paths.key)
  const client = yield* readClientCa(names.clientCa ?? "", paths.clientCa ?? "")
  if (cert === undefined && key === undefined) {
    if (client.clientCa === undefined) return undefined
    return yield* new StartError({
      message: `${names.clientCa} is set and ${names.cert} is not: only HTTPS asks for certificates; set ${names.cert} and ${names.key}`
    })
  }
  if (cert === undefined || key === undefined) {
    const [set, unset] = cert === undefined ? [names.key, names.cert] : [names.cert, names.key]
    return yield* new StartError({ message: `${set} is set and ${unset} is not: set both` })
  }
  const tls: TlsOptions = { cert, key, ...client }
  yield* checked(tls, `${names.cert}, ${names.key}`)
  return tls
})

/** As {@link readCa}, and again when the file changes; undefined: the setting is unset. */
export const liveCa = (name: string, path: string) =>
  path === ""
    ? Effect.succeed(undefined)
    : liveFiles({ names: name, paths: [path], read: Effect.map(readCa(name, path), (ca) => ca ?? "") })

/** As {@link readTls}, and again when a file changes; undefined: the settings are unset. */
export const liveTls = Effect.fnUntraced(function* (names: TlsFiles, paths: TlsFiles) {
  const first = yield* readTls(names, paths)
  if (first === undefined) return undefined
  return yield* liveFiles({
    names: [names.cert, names.key, ...(first.clientCa === undefined ? [] : [names.clientCa])].join(", "),
    paths: [paths.cert, paths.key, ...(first.clientCa === undefined ? [] : [paths.clientCa ?? ""])],
    read: Effect.map(readTls(names, paths), (tls) => tls ?? first)
  })
})
