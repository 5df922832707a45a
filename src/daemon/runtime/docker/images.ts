import { Effect, Redacted, Schema } from "effect"
import { whyOf } from "../exitReason.ts"
import { LaunchFailed, noProgram, type PullWatch } from "../Runtime.ts"
import { destroy, Engine, type EngineError, orNotFound } from "./Engine.ts"
import { type RegistryAuth, registryAuth } from "./registryAuth.ts"

const remedies: ReadonlyArray<readonly [RegExp, string]> = [
  [/port is already allocated|address already in use/i, "stop the program that uses the port"],
  [/no space left on device/i, "free space on the engine's disk"],
  [/permission denied/i, "give the user of the daemon access to the engine"],
  [/does not answer/, "start Docker, or allow the software to run as a process (`runtimes`)"],
  [/is too old/, "install Docker Engine 20.10 or newer"]
]

export const launchFailed = (error: {
  readonly message: string
  readonly code?: string
  readonly next?: string
}): LaunchFailed => {
  const { code, message } = error
  const [, missing] =
    /exec: "(.+?)": (?:executable file not found in \$PATH|stat .*no such file)/.exec(message) ?? []
  if (missing !== undefined) return noProgram(missing, "of the image")
  const next = error.next ?? remedies.find(([pattern]) => pattern.test(message))?.[1]
  return new LaunchFailed(whyOf({ message, code, next }))
}

export type PullPolicy = "always" | "if-not-present" | "never"

/** The syntax of image references; a reference also becomes part of a path of the engine's API. */
const referencePattern =
  /^[A-Za-z0-9][A-Za-z0-9._-]*(?::[0-9]{1,5}(?=\/))?(?:\/[A-Za-z0-9][A-Za-z0-9._-]*)*(?::[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(?:@sha256:[0-9a-f]{64})?$/

/** The sign of an image that is only on the node: it is never pulled. */
const LOCAL = "~"

export const engineReference = (image: string): string =>
  image.startsWith(LOCAL) ? image.slice(LOCAL.length) : image

const isImageReference = (text: string): boolean =>
  text.length <= 512 && !text.includes("..") && referencePattern.test(text)

const Progress = Schema.fromJsonString(
  Schema.Struct({
    id: Schema.optionalKey(Schema.String),
    status: Schema.optionalKey(Schema.String),
    progressDetail: Schema.optionalKey(
      Schema.Struct({
        current: Schema.optionalKey(Schema.Finite),
        total: Schema.optionalKey(Schema.Finite)
      })
    ),
    error: Schema.optionalKey(Schema.String)
  })
)
const decodeProgress = Schema.decodeUnknownOption(Progress)

/** The shares of a layer that are done at the begin and the end of a status: half of the work is the extraction. */
const layerShares: ReadonlyMap<string, readonly [from: number, to: number]> = new Map([
  ["Pulling fs layer", [0, 0]],
  ["Waiting", [0, 0]],
  ["Downloading", [0, 0.5]],
  ["Verifying Checksum", [0.5, 0.5]],
  ["Download complete", [0.5, 0.5]],
  ["Extracting", [0.5, 1]],
  ["Pull complete", [1, 1]],
  ["Already exists", [1, 1]]
])

/** Returns the share of a layer that is done, 0 to 1, if the message is about a layer. */
const layerShare = ({ progressDetail, status }: typeof Progress.Type): number | undefined => {
  const { current = 0, total = 0 } = progressDetail ?? {}
  const done = total > 0 ? Math.min(1, Math.max(0, current / total)) : 0
  const [from, to] = layerShares.get(status ?? "") ?? []
  return from === undefined || to === undefined ? undefined : from + (to - from) * done
}

/** Reports each status once per layer, and the share of all layers that is done, which never shrinks. */
export const progressReader = (onLine: (line: string) => void, onProgress: PullWatch["onProgress"]) => {
  const reported = new Map<string, string>()
  const layers = new Map<string, number>()
  let done = 0
  let pending = ""
  let problem: string | undefined
  const message = (text: string) => {
    const read = decodeProgress(text)
    if (read._tag === "None") return
    const { error, id, status } = read.value
    if (error !== undefined) problem = error
    const share = id === undefined ? undefined : layerShare(read.value)
    if (id !== undefined && share !== undefined) {
      layers.set(id, Math.max(share, layers.get(id) ?? 0))
      const sum = [...layers.values()].reduce((all, layer) => all + layer, 0)
      if (sum / layers.size > done) {
        done = sum / layers.size
        onProgress(done)
      }
    }
    if (status === undefined || reported.get(id ?? "") === status) return
    reported.set(id ?? "", status)
    onLine(id === undefined ? status : `${id}: ${status}`)
  }
  return {
    take: (text: string): void => {
      const lines = (pending + text).split("\n")
      pending = lines.pop() ?? ""
      for (const line of lines) message(line)
    },
    /** Returns why the pull failed, if it failed. */
    end: (): string | undefined => {
      if (pending !== "") message(pending)
      return problem
    }
  }
}

const isPresent = Effect.fnUntraced(function* (image: string) {
  const engine = yield* Engine
  return yield* engine
    .call(`look for the image ${image}`, (docker) => docker.getImage(image).inspect())
    .pipe(Effect.as(true), orNotFound(false))
})

/** Splits a reference into the two parts of the engine's API; a digest takes the place of the tag. */
const parts = (image: string) => {
  const [name = image, digest] = image.split("@")
  const colon = name.lastIndexOf(":")
  const untagged = colon < 0 || name.includes("/", colon) ? name : name.slice(0, colon)
  return { fromImage: untagged, tag: digest ?? (untagged === name ? "latest" : name.slice(colon + 1)) }
}

interface PullOutput {
  readonly onLine: (line: string) => void
  readonly watch?: PullWatch | undefined
}

const unwatched: PullWatch = { begun: Effect.void, onProgress: () => undefined }

const pull = Effect.fnUntraced(function* (
  image: string,
  auth: RegistryAuth | undefined,
  { onLine, watch = unwatched }: PullOutput
) {
  yield* watch.begun
  const engine = yield* Engine
  const stream = yield* engine.wait(`pull ${image}`, (docker, abortSignal) => {
    const options = { ...parts(image), abortSignal }
    // The client sends the credentials in a header, not in the URL.
    return auth === undefined
      ? docker.createImage(options)
      : docker.createImage(Redacted.value(auth), options)
  })
  const progress = progressReader(onLine, watch.onProgress)
  return yield* Effect.callback<string | undefined>((resume) => {
    stream.on("data", (chunk: Buffer) => progress.take(chunk.toString("utf8")))
    stream.on("end", () => resume(Effect.sync(progress.end)))
    stream.on("error", (cause: Error) => resume(Effect.succeed(cause.message)))
    stream.on("close", () => resume(Effect.succeed(progress.end() ?? "the engine went down")))
    return Effect.sync(() => destroy(stream))
  })
})

const failed = (image: string, reason: string) =>
  new LaunchFailed({
    message: `image ${image} cannot be pulled: ${reason}`,
    next: "check the name of the image, the registry, and the credentials of the daemon (docker login)"
  })

export interface PullRules {
  readonly policy: PullPolicy
  /** The config file of Docker's command line with the credentials of registries. */
  readonly config?: string | undefined
}

/** Whether a start waits for a registry. @error LaunchFailed the image cannot be present */
export const needsPull = Effect.fn("docker.needsPull")(
  function* (image: string, policy: PullPolicy) {
    const reference = engineReference(image)
    if (!isImageReference(reference)) {
      return yield* new LaunchFailed({
        message: `not an image reference: ${image.slice(0, 100)}`,
        code: "REFUSED"
      })
    }
    const present = yield* isPresent(reference)
    if (reference !== image) {
      if (present) return false
      return yield* new LaunchFailed({
        message: `image ${reference} is not on this node, and the ~ before its name means that it is never pulled`,
        next: "load the image there, or write its name without ~"
      })
    }
    if (policy === "never" && !present) {
      return yield* new LaunchFailed({
        message: `image ${image} is not on this node, and its pull policy is never`,
        next: "load the image there, or set MUSTER_DOCKER_PULL"
      })
    }
    return !present || policy === "always"
  },
  Effect.catchTag("EngineError", (error) => Effect.fail(launchFailed(error)))
)

/** Pulls the image if needed. With `mustBeFresh` and `always`, a failed pull is an error. */
export const ensureImage = Effect.fn("docker.ensureImage")(
  function* (image: string, rules: PullRules, options: PullOutput & { readonly mustBeFresh: boolean }) {
    if (!(yield* needsPull(image, rules.policy))) return
    options.onLine(`pulling ${image}`)
    const auth = rules.config === undefined ? Effect.undefined : registryAuth(image, rules.config)
    const problem = yield* auth.pipe(
      Effect.flatMap((known) => pull(image, known, options)),
      Effect.catch((error: EngineError | LaunchFailed) => Effect.succeed(error.message))
    )
    if (problem === undefined) return
    if (options.mustBeFresh || !(yield* isPresent(image))) return yield* failed(image, problem)
    options.onLine(`${problem}; the local image is used`)
  },
  Effect.catchTag("EngineError", (error) => Effect.fail(launchFailed(error)))
)
