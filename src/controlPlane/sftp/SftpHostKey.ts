/** The keys of SFTP (spec 10.6): the public keys of callers, and the host key of the service, one for all replicas. */
import { createHash, createPublicKey } from "node:crypto"
import { Context, Effect, Layer, Option, Semaphore } from "effect"
import type * as Ssh from "ssh2"
import { replaceHostile } from "../../contract/domain/NodeText.ts"
import { SftpRepo } from "../store/repos/SftpRepo.ts"
import { makeSeal, passingSecret, type Seal } from "../store/Seal.ts"
import { Store } from "../store/Store.ts"

/** Loaded at the first use: most services have no SFTP. */
export const loadSsh = Effect.map(
  Effect.promise(() => import("ssh2")),
  ({ default: ssh }) => ssh
)

const SHORTEST_RSA = 2048
const LONGEST_COMMENT = 200

const form =
  /^(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(?:256|384|521)) +([A-Za-z0-9+/]+={0,2})(?: +([^\r\n]*))?$/

/** Returns the fingerprint of a key as OpenSSH shows it: `SHA256:...`. */
export const fingerprintOf = (blob: Uint8Array): string =>
  `SHA256:${createHash("sha256").update(blob).digest("base64").replace(/=+$/, "")}`

export interface PublicKey {
  readonly type: string
  readonly fingerprint: string
  readonly comment: string
}

const bitsOf = Option.liftThrowable((pem: string) => createPublicKey(pem).asymmetricKeyDetails?.modulusLength)

/** Reads a line as `ssh-keygen` writes it to a file `.pub`. Returns what is expected instead if the text is no such line. */
export const readPublicKey = (text: string, { parseKey }: typeof Ssh.utils): PublicKey | string => {
  const [, type = "", encoded = "", comment = ""] = form.exec(text.trim()) ?? []
  if (type === "")
    return "expected one line of an ssh-ed25519, ecdsa-sha2-nistp256, -nistp384, -nistp521 or ssh-rsa public key, without options"
  const blob = Buffer.from(encoded, "base64")
  const key = parseKey(blob)
  if (key instanceof Error || key.type !== type || key.isPrivateKey())
    return `expected a public key of the type ${type}`
  const bits = type === "ssh-rsa" ? Option.getOrUndefined(bitsOf(key.getPublicPEM())) : SHORTEST_RSA
  if (bits === undefined || bits < SHORTEST_RSA)
    return `expected at least ${SHORTEST_RSA} bits, got ${bits ?? "another key"}`
  return {
    type,
    fingerprint: fingerprintOf(blob),
    comment: replaceHostile(comment.trim().slice(0, LONGEST_COMMENT), "?")
  }
}

export const makeSftpSeal = (secret: Uint8Array): Seal => makeSeal(secret, "sftp host key")

/** The seal of the host key. Default: a secret that ends with the process. */
export const SftpSeal: Context.Reference<Seal> = Context.Reference("muster/sftp/SftpSeal", {
  defaultValue: () => makeSftpSeal(passingSecret())
})

/** What the seal is bound to. */
const ROW = "host"

export interface HostKey {
  /** The private key in the form of OpenSSH. */
  readonly text: string
  /** As OpenSSH shows it: `SHA256:...`. */
  readonly fingerprint: string
  /** As a line of `known_hosts` has it: `ssh-ed25519 AAAA...`. */
  readonly host_key: string
}

const parsed = Effect.fnUntraced(function* (text: string) {
  const key = (yield* loadSsh).utils.parseKey(text)
  if (key instanceof Error) return undefined
  const blob = key.getPublicSSH()
  return {
    text,
    fingerprint: fingerprintOf(blob),
    host_key: `${key.type} ${blob.toString("base64")}`
  } satisfies HostKey
})

/** Makes a private key. One in 200 keys that `ssh2` makes cannot be read by it: another one is made. */
export const generateHostKey = Effect.gen(function* () {
  const { utils } = yield* loadSsh
  return yield* Effect.sync(() => utils.generateKeyPairSync("ed25519").private).pipe(
    Effect.repeat({ until: (text) => Effect.map(parsed(text), (key) => key !== undefined) })
  )
})

const make = Effect.gen(function* () {
  const repo = yield* SftpRepo
  const store = yield* Store
  const seal = yield* SftpSeal
  const oneAtATime = yield* Semaphore.make(1)
  let known: HostKey | undefined

  const stored = Effect.gen(function* () {
    const sealed = yield* store.read(repo.hostKey)
    const text = sealed === undefined ? undefined : seal.open(ROW, sealed)
    return { isThere: sealed !== undefined, key: text === undefined ? undefined : yield* parsed(text) }
  })

  const load = Effect.gen(function* () {
    const before = yield* stored
    if (before.key !== undefined) return before.key
    if (before.isThere) {
      yield* Effect.logWarning(
        "the host key of SFTP was sealed with another secret: the service makes another key, and clients ask their users to accept it"
      )
    }
    yield* store.write(repo.save(seal.seal(ROW, yield* generateHostKey), before.isThere))
    // Another replica may have been first.
    const after = yield* stored
    return after.key ?? (yield* Effect.die("the host key that was stored cannot be read"))
  })

  return {
    /** Returns the key; the first call of all replicas makes it. @error Unavailable the database cannot be reached */
    key: Effect.suspend(() =>
      known === undefined
        ? Effect.tap(load, (key) =>
            Effect.sync(() => {
              known = key
            })
          ).pipe(oneAtATime.withPermit)
        : Effect.succeed(known)
    )
  }
})

export class SftpHostKey extends Context.Service<SftpHostKey, Effect.Success<typeof make>>()(
  "muster/sftp/SftpHostKey"
) {
  static readonly layer = Layer.effect(SftpHostKey, make)
}
