import { Effect, Schema } from "effect"
import { LaunchFailed } from "../Runtime.ts"
import { Engine, type EngineError, orGone } from "./Engine.ts"

/** When an image is fetched from its registry. */
export type PullPolicy = "always" | "if-not-present" | "never"

/** A reference as registries have them; it also becomes part of a path of the engine's interface. */
const referencePattern =
  /^[A-Za-z0-9][A-Za-z0-9._-]*(?::[0-9]{1,5}(?=\/))?(?:\/[A-Za-z0-9][A-Za-z0-9._-]*)*(?::[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(?:@sha256:[0-9a-f]{64})?$/

/** Whether this is the reference of an image. */
export const isImageReference = (text: string): boolean =>
  text.length <= 512 && !text.includes("..") && referencePattern.test(text)

const Progress = Schema.fromJsonString(
  Schema.Struct({
    id: Schema.optionalKey(Schema.String),
    status: Schema.optionalKey(Schema.String),
    error: Schema.optionalKey(Schema.String)
  })
)
const decodeProgress = Schema.decodeUnknownOption(Progress)

/** Reads the engine's progress messages; a status is told once for each layer. */
export const progressReader = (onLine: (line: string) => void) => {
  const told = new Map<string, string>()
  let pending = ""
  let problem: string | undefined
  const message = (text: string) => {
    const read = decodeProgress(text)
    if (read._tag === "None") return
    const { error, id, status } = read.value
    if (error !== undefined) problem = error
    if (status === undefined || told.get(id ?? "") === status) return
    told.set(id ?? "", status)
    onLine(id === undefined ? status : `${id}: ${status}`)
  }
  return {
    take: (text: string): void => {
      const lines = (pending + text).split("\n")
      pending = lines.pop() ?? ""
      for (const line of lines) message(line)
    },
    /** Why it failed; undefined when it did not. */
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
    .pipe(Effect.as(true), orGone(false))
})

const pull = Effect.fnUntraced(function* (image: string, onLine: (line: string) => void) {
  const engine = yield* Engine
  const stream = yield* engine.wait(`pull ${image}`, (docker, abortSignal) =>
    docker.pull(image, { abortSignal })
  )
  const progress = progressReader(onLine)
  return yield* Effect.callback<string | undefined>((resume) => {
    stream.on("data", (chunk: Buffer) => progress.take(chunk.toString("utf8")))
    stream.on("end", () => resume(Effect.sync(progress.end)))
    stream.on("error", (cause: Error) => resume(Effect.succeed(cause.message)))
    return Effect.sync(() => {
      if ("destroy" in stream && typeof stream.destroy === "function") stream.destroy()
    })
  })
})

const failed = (image: string, reason: string) =>
  new LaunchFailed({ message: `image ${image} cannot be pulled: ${reason}` })

/**
 * Sees to it that the image is there. `must_be_fresh`: with `always`, a registry that does not answer is a failure;
 * else an image of an earlier pull is good enough.
 */
export const ensureImage = Effect.fn("docker.ensureImage")(
  function* (
    image: string,
    policy: PullPolicy,
    options: { readonly onLine: (line: string) => void; readonly must_be_fresh: boolean }
  ) {
    if (!isImageReference(image)) {
      return yield* new LaunchFailed({ message: `not the reference of an image: ${image.slice(0, 100)}` })
    }
    const present = yield* isPresent(image)
    if (present && policy !== "always") return
    if (policy === "never") {
      return yield* new LaunchFailed({
        message: `image ${image} is not on this node, and its pull policy is never: load it there`
      })
    }
    options.onLine(`pulling ${image}`)
    const problem = yield* pull(image, options.onLine).pipe(
      Effect.catch((error: EngineError) => Effect.succeed(error.message))
    )
    if (problem === undefined) return
    if (!present || options.must_be_fresh) return yield* failed(image, problem)
    options.onLine(`${problem}; the image that is here is used`)
  },
  Effect.catchTag("EngineError", (error) => Effect.fail(new LaunchFailed({ message: error.message })))
)
