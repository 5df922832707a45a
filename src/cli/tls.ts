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

const checked = (options: { readonly ca?: string } | TlsOptions, names: string) =>
  Effect.try({
    try: () => createSecureContext(options),
    catch: (cause) => new StartError({ message: `${names}: not usable in PEM (${reasonOf(cause)})` })
  })

/** Certificates to trust, in PEM; undefined: those of the system. */
const readCa = Effect.fnUntraced(function* (name: string, path: string) {
  const ca = yield* readFileOf(name, path)
  if (ca !== undefined) yield* checked({ ca }, name)
  return ca
})

/** Certificate and key of a server; undefined when neither is set. */
const readTls = Effect.fnUntraced(function* (
  names: { readonly cert: string; readonly key: string },
  paths: { readonly cert: string; readonly key: string }
) {
  const cert = yield* readFileOf(names.cert, paths.cert)
  const key = yield* readFileOf(names.key, paths.key)
  if (cert === undefined && key === undefined) return undefined
  if (cert === undefined || key === undefined) {
    const [set, unset] = cert === undefined ? [names.key, names.cert] : [names.cert, names.key]
    return yield* new StartError({ message: `${set} is set and ${unset} is not: set both` })
  }
  const tls: TlsOptions = { cert, key }
  yield* checked(tls, `${names.cert}, ${names.key}`)
  return tls
})

type Files<K extends string> = Readonly<Record<K, string>>

/** As {@link readCa}, and again when the file changes; undefined: the setting is unset. */
export const liveCa = (name: string, path: string) =>
  path === ""
    ? Effect.succeed(undefined)
    : liveFiles({ names: name, paths: [path], read: Effect.map(readCa(name, path), (ca) => ca ?? "") })

/** As {@link readTls}, and again when a file changes; undefined: the settings are unset. */
export const liveTls = Effect.fnUntraced(function* (
  names: Files<"cert" | "key">,
  paths: Files<"cert" | "key">
) {
  const first = yield* readTls(names, paths)
  if (first === undefined) return undefined
  return yield* liveFiles({
    names: `${names.cert}, ${names.key}`,
    paths: [paths.cert, paths.key],
    read: Effect.map(readTls(names, paths), (tls) => tls ?? first)
  })
})
