import { createPrivateKey, X509Certificate } from "node:crypto"
import { readFileSync, readlinkSync } from "node:fs"
import { readFile } from "node:fs/promises"
import { createSecureContext } from "node:tls"
import { Effect } from "effect"
import { HttpServer } from "effect/http"
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

/**
 * Warns of plain HTTP beyond this host: `what` is the fact, `remedy` an imperative.
 * @error StartError TLS is required
 */
export const plainHttp = (requireTls: boolean, what: string, remedy: string) =>
  requireTls
    ? Effect.fail(new StartError({ message: `${what}, and MUSTER_REQUIRE_TLS is true: ${remedy}` }))
    : Effect.logWarning(`${what}, so that keys and data cross the network unencrypted: ${remedy}`)

export const isWildcard = (host: string): boolean => host === "0.0.0.0" || host === "::"

/** Returns an address as text: IPv6 hosts in brackets, no port if none is given. */
export const urlOf = (scheme: "http" | "https", host: string, port?: number): string =>
  `${scheme}://${host.includes(":") ? `[${host}]` : host}${port === undefined ? "" : `:${port}`}`

/** Returns the address at which the server of this process listens, with its actual port. */
export const listenUrl = Effect.fnUntraced(function* (
  scheme: "http" | "https",
  settings: { readonly host: string; readonly port: number }
) {
  const { address } = yield* HttpServer.HttpServer
  return urlOf(scheme, settings.host, "port" in address ? address.port : settings.port)
})

/** The first descriptor that systemd passes. Node.js marks it at its start, so that no child inherits it. */
const FIRST = 3
const LISTENING = "0A"

/** Returns an address of /proc/net, words of four bytes with the last byte first, as text. */
const addressOf = (kernel: string): string => {
  const bytes = (kernel.match(/.{8}/g) ?? []).flatMap((word) => [...Buffer.from(word, "hex")].toReversed())
  if (bytes.length === 4) return bytes.join(".")
  const groups = Buffer.from(bytes).toString("hex").match(/.{4}/g) ?? []
  return new URL(`http://[${groups.join(":")}]`).hostname.slice(1, -1)
}

/** Returns the address of a listening TCP socket of this process; undefined for other descriptors. */
const listeningAt = (fd: number) => {
  const inode = /^socket:\[(\d+)\]$/.exec(readlinkSync(`/proc/self/fd/${fd}`))?.[1]
  for (const table of ["tcp", "tcp6"]) {
    for (const line of readFileSync(`/proc/self/net/${table}`, "utf8").split("\n").slice(1)) {
      const [, local = "", , state, , , , , , of] = line.trim().split(/\s+/)
      const [address = "", port = ""] = local.split(":")
      if (of === inode && state === LISTENING)
        return { host: addressOf(address), port: Number.parseInt(port, 16) }
    }
  }
  return undefined
}

/**
 * Returns the settings with the address of the socket that systemd has passed, which replaces those of the settings.
 * systemd holds the port, so that it is free at no moment.
 */
export const withPassedSocket = Effect.fnUntraced(function* <
  S extends { readonly host: string; readonly port: number }
>(settings: S): Effect.fn.Return<S & { readonly fd?: number }, StartError> {
  const { LISTEN_FDS: count = "0", LISTEN_PID: pid } = process.env
  for (const name of ["LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PID", "LISTEN_PIDFDID"])
    Reflect.deleteProperty(process.env, name)
  if (pid !== String(process.pid) || count === "0") return settings
  const passed =
    count === "1"
      ? yield* Effect.orElseSucceed(
          Effect.try(() => listeningAt(FIRST)),
          () => undefined
        )
      : undefined
  if (passed === undefined) {
    return yield* new StartError({
      message: `systemd passes ${count === "1" ? "a descriptor that is no listening TCP socket" : `${count} sockets`}: give the socket unit one ListenStream= with an address and a port`
    })
  }
  const { host, port } = passed
  yield* Effect.logInfo(
    `the socket unit of systemd listens on ${host.includes(":") ? `[${host}]` : host}:${port}, in place of the settings of host and port`
  )
  return { ...settings, host, port, fd: FIRST }
})
