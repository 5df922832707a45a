/** Reads the file of `MUSTER_BLUEPRINT_SOURCES`: the git repositories, whose addresses are safe for `git`, and their destinations. */
import { Data, Effect, FileSystem, Path, Result, Schema } from "effect"
import { DefinitionId } from "../../../contract/domain/Id.ts"
import {
  type Decoder,
  list,
  mapping,
  number,
  type Reading,
  refined,
  required,
  text,
  withDefault,
  word
} from "../parse/decode.ts"
import { describeProblems, type Problem, printable } from "../parse/located.ts"
import { readDocument } from "../parse/parse.ts"
import { relativePath } from "../parse/paths.ts"
import { reasonOf } from "./placement.ts"

/** The protocols that a source may use, as git's `GIT_ALLOW_PROTOCOL` names them. */
type GitProtocol = "https" | "ssh" | "file"

export interface GitAddress {
  /** The address for git: without user and password if the protocol is https. */
  readonly url: string
  readonly protocol: GitProtocol
  /** The user of an https address, sent with the token. */
  readonly user: string | undefined
}

const EXPECTED = "write https://..., ssh://..., user@host:path, file:///... or an absolute path"

const parseUrl = (text: string): Result.Result<URL, string> =>
  Result.try({ try: () => new URL(text), catch: () => `no valid address; ${EXPECTED}` })

const https = (text: string): Result.Result<GitAddress, string> =>
  Result.flatMap(parseUrl(text), (url) => {
    if (url.password !== "") {
      return Result.fail("holds a password; name it with `token_env` or `token_file` instead")
    }
    if (url.search !== "" || url.hash !== "") return Result.fail("has a query or a fragment")
    const user = url.username === "" ? undefined : decodeURIComponent(url.username)
    url.username = ""
    return Result.succeed({ url: url.href, protocol: "https", user })
  })

/** A host or user that begins with `-` would be an option of ssh. */
const ssh = (text: string, user: string, host: string): Result.Result<GitAddress, string> =>
  /^[A-Za-z0-9_][\w.+-]*$|^$/.test(user) && /^(?:[A-Za-z0-9][\w.-]*|\[[0-9a-fA-F:.]+\])$/.test(host)
    ? Result.succeed({ url: text, protocol: "ssh", user: undefined })
    : Result.fail(`no valid host or user; ${EXPECTED}`)

const sshUrl = (text: string): Result.Result<GitAddress, string> => {
  const [, user = "", host = ""] = /^ssh:\/\/(?:([^@/]*)@)?([^/@]+?)(?::\d{1,5})?\/[^\s]+$/.exec(text) ?? []
  return user.includes(":") ? Result.fail("holds a password; ssh uses keys") : ssh(text, user, host)
}

/** Reads an address; fails with the reason if a source may not use it. */
export const gitAddress = (text: string): Result.Result<GitAddress, string> => {
  if (/[\p{Cc}\p{Zl}\p{Zp}]/u.test(text)) return Result.fail("contains control characters")
  if (/^https:\/\//i.test(text)) return https(text)
  if (/^ssh:\/\//i.test(text)) return sshUrl(text)
  if (/^file:\/\/\/./i.test(text) || /^\/./.test(text)) {
    return Result.succeed({ url: text, protocol: "file", user: undefined })
  }
  const scp = /^([^@/:\s]+)@([^/:\s]+|\[[^\]]+\]):([^-:\s][^\s]*)$/.exec(text)
  if (scp !== null) return ssh(text, scp[1] ?? "", scp[2] ?? "")
  return Result.fail(`no address that a source may have; ${EXPECTED}`)
}

/** Reads a branch, a tag or a full commit id, as `git check-ref-format` allows it: no option and no refspec. */
export const gitRef = (text: string): Result.Result<string, string> => {
  const sound =
    text.length <= 255 &&
    !/^[-/.]|[\p{Cc}\s~^:?*[\\]|\.\.|@\{|\/\/|\/\.|[/.]$|\.lock(?:\/|$)/u.test(text) &&
    text !== "@"
  return sound ? Result.succeed(text) : Result.fail("no name of a branch or tag, and no commit id")
}

export type SourceKind = "blueprints" | "software"

/** The place of a source's token. Each sync reads it; no token is stored. */
type TokenPlace = { readonly env: string } | { readonly file: string }

/** One git repository whose definitions are synced into a folder below the blueprints or the software folder. */
export interface Source {
  readonly id: string
  readonly kind: SourceKind
  readonly address: GitAddress
  /** Branch, tag or full commit id; the remote's HEAD if unset. */
  readonly ref: string | undefined
  /** The folder inside the repository, empty for its root. */
  readonly path: string
  /** Folder below the definitions folder. */
  readonly destination: string
  readonly token: TokenPlace | undefined
  /** Certificates (PEM) for the check of the server's, instead of the system's. */
  readonly ca_file: string | undefined
  /** Seconds that one sync may take. */
  readonly timeout: number
}

const STANDARD_TIMEOUT = 60

/** Decodes text that `read` accepts. */
const checked = <A>(read: (text: string) => Result.Result<A, string>, what: string) =>
  refined(text(Schema.String, what), read)

const address = checked(
  (value) =>
    Result.mapError(gitAddress(value), (reason) => `the url \`${withoutPassword(value)}\`: ${reason}`),
  "an address"
)

/** Removes a password from an address, for messages. */
const withoutPassword = (url: string): string => printable(url.replace(/\/\/[^/]*@/, "//...@"), 120)

const ref = checked(
  (value) => Result.mapError(gitRef(value), (reason) => `the ref \`${printable(value, 80)}\` is ${reason}`),
  "a branch, a tag or a commit id"
)

/** A folder inside the repository; `.` and the empty text are its root. */
const folder = checked(
  (value) => (/^(?:\.?\/?)$/.test(value) ? Result.succeed("") : relativePath(value)),
  "a folder"
)

const destination = checked(
  (value) =>
    Result.flatMap(relativePath(value), (path) =>
      path.split("/").some((part) => part.startsWith("."))
        ? Result.fail(`the path \`${printable(value, 80)}\` begins with a dot: such folders are not read`)
        : Result.succeed(path)
    ),
  "a folder"
)

const file = checked(
  (value) =>
    value === "" || value.includes("\0") ? Result.fail("expected the path of a file") : Result.succeed(value),
  "the path of a file"
)

const variable = text(
  Schema.String.check(
    Schema.isPattern(/^[A-Za-z_][A-Za-z0-9_]{0,127}$/, { expected: "the name of an environment variable" })
  )
)

const timeout = number(Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 600 })))

interface Placed<A> {
  readonly value: A
  readonly at: number
}

const placed =
  <A>(decode: Decoder<A>): Decoder<Placed<A>> =>
  (node, reading) => {
    const value = decode(node, reading)
    return value === undefined ? undefined : { value, at: node.at }
  }

const fields = mapping("sources.", {
  id: required(placed(text(DefinitionId, "an id"))),
  kind: withDefault(word(["blueprints", "software"]), "blueprints"),
  url: required(address),
  ref,
  path: withDefault(folder, ""),
  destination: placed(destination),
  token_env: placed(variable),
  token_file: placed(file),
  ca_file: placed(file),
  timeout: withDefault(timeout, STANDARD_TIMEOUT)
})

interface PlacedSource {
  readonly source: Source
  readonly idAt: number
  readonly destinationAt: number
}

const source: Decoder<PlacedSource> = (node, reading) => {
  const found = fields(node, reading)
  if (found === undefined) return undefined
  const { ca_file, destination, id, token_env, token_file, url: address, ref, ...others } = found
  if (token_env !== undefined && token_file !== undefined)
    reading.problem(token_file.at, "`token_env` is there already; a source has one token")
  const [key, secret] = Object.entries({ token_env, token_file, ca_file }).find(([, one]) => one) ?? []
  if (address.protocol !== "https" && secret !== undefined)
    reading.problem(secret.at, `\`${key}\` goes with an https address only`)
  const token: TokenPlace | undefined =
    token_env !== undefined
      ? { env: token_env.value }
      : token_file !== undefined
        ? { file: token_file.value }
        : undefined
  const into = { destination: destination?.value ?? id.value, token, ca_file: ca_file?.value }
  return {
    source: { id: id.value, address, ref, ...into, ...others },
    idAt: id.at,
    destinationAt: destination?.at ?? node.at
  }
}

/** Checks that ids are unique and that no source's folder is or contains another's. */
const checkTogether = (all: ReadonlyArray<PlacedSource>, reading: Reading) => {
  all.forEach(({ destinationAt, idAt, source: one }, index) => {
    const before = all.slice(0, index).map((other) => other.source)
    if (before.some(({ id }) => id === one.id)) reading.problem(idAt, `the id \`${one.id}\` is there twice`)
    const clash = before.find(
      ({ destination: other, id, kind }) =>
        id !== one.id &&
        kind === one.kind &&
        (`${other}/`.startsWith(`${one.destination}/`) || `${one.destination}/`.startsWith(`${other}/`))
    )
    if (clash !== undefined) {
      const same = clash.destination === one.destination ? "the folder" : "a folder inside or around that"
      reading.problem(
        destinationAt,
        `the destination \`${one.destination}\` is ${same} of source \`${clash.id}\` (\`${clash.destination}\`)`
      )
    }
  })
}

/** The sources of the file; with a problem, none of them may be used. */
interface ParsedSources {
  readonly sources: ReadonlyArray<Source>
  readonly problems: ReadonlyArray<Problem>
}

const sourcesFile = mapping("", { sources: required(list(source)) })

/** @param file its path, for messages */
export const parseSources = (file: string, bytes: Uint8Array): ParsedSources => {
  const { problems, value = [] } = readDocument(file, bytes, (root, reading) => {
    const placed = sourcesFile(root, reading)?.sources
    if (placed !== undefined) checkTogether(placed, reading)
    return placed?.map((one) => one.source)
  })
  return { sources: value, problems }
}

/** The setting that names the file. */
export const SETTING = "MUSTER_BLUEPRINT_SOURCES"

export class InvalidSources extends Data.TaggedError("InvalidSources")<{
  readonly path: string
  /** The `file` of each problem is the file's name only. */
  readonly problems: ReadonlyArray<Problem>
  readonly reason?: string
}> {
  /** For the operator: names the setting and the path. */
  override get message(): string {
    if (this.reason !== undefined) return `${SETTING}: ${this.path} ${this.reason}`
    return describeProblems(this.problems.map((problem) => ({ ...problem, file: this.path })))
      .split("\n")
      .map((line) => `${SETTING}: ${line}`)
      .join("\n")
  }
  /** For a caller of the API: names no path. */
  get detail(): string {
    return this.reason === undefined
      ? describeProblems(this.problems)
      : `the file of the sources ${this.reason}`
  }
}

/** Reads the file; paths in it are relative to its folder. */
export const readSources = Effect.fn("readSources")(function* (file: string) {
  const fs = yield* FileSystem.FileSystem
  const path = yield* Path.Path
  const bytes = yield* fs.readFile(file).pipe(
    Effect.mapError(
      (error) =>
        new InvalidSources({
          path: file,
          problems: [],
          reason: `cannot be read: ${reasonOf(error)}`
        })
    )
  )
  const { problems, sources } = parseSources(path.basename(file), bytes)
  if (problems.length > 0) return yield* new InvalidSources({ path: file, problems })
  const resolve = (named: string) => path.resolve(path.dirname(file), named)
  return sources.map(
    (source): Source => ({
      ...source,
      token:
        source.token !== undefined && "file" in source.token
          ? { file: resolve(source.token.file) }
          : source.token,
      ca_file: source.ca_file === undefined ? undefined : resolve(source.ca_file)
    })
  )
})
