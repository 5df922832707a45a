import { Duration, Effect, Layer, Option, Redacted, References, Tracer } from "effect"
import {
  HttpClient,
  type HttpClientRequest,
  HttpClientResponse,
  HttpMiddleware,
  UrlParams
} from "effect/http"
import { OtlpExporter, OtlpMetrics, OtlpSerialization, OtlpTracer } from "effect/observability"
import { requestPath } from "../controlPlane/http/requestUrl.ts"
import type { otlp } from "../shared/config/common.ts"
import type { ServiceSettings } from "../shared/config/service.ts"
import { connectTimeoutClient } from "../shared/net/connectTimeoutClient.ts"
import { ObserveEvery } from "../shared/observability/observations.ts"
import { elapsedMillis } from "../shared/work/elapsed.ts"
import { version } from "./version.ts"

/** Traces that begin or continue here in a second without a sampler; further requests are not traced. */
const TRACES_PER_SECOND = 50

export type Sampling = Pick<ServiceSettings, "tracesSampler" | "tracesRatio">

const makeBounded = () => {
  let second = 0n
  let begun = 0
  return (startTime: bigint): boolean => {
    const now = startTime / 1_000_000_000n
    if (now !== second) begun = 0
    second = now
    begun += 1
    return begun <= TRACES_PER_SECOND
  }
}

/** Whether the ratio includes a trace: by the last 63 bits of its id, so that every process decides the same. */
const isIncluded = (traceId: string, ratio: number): boolean =>
  Number(BigInt(`0x${traceId.slice(-16)}`) >> 1n) < ratio * 2 ** 63

/** Records the requests that the sampler chooses, and their consequences; no other work of this process. */
export const sampled = (tracer: Tracer.Tracer, { tracesRatio, tracesSampler }: Sampling): Tracer.Tracer => {
  const isBounded = makeBounded()
  const [, isParentBased, sampler] = /^(parentbased_)?(.*)$/.exec(tracesSampler) ?? []
  return Tracer.make({
    span: (options) => {
      const { kind, parent, startTime } = options
      const span = (isRecorded: boolean) => tracer.span({ ...options, sampled: isRecorded })
      if (kind !== "server") return span(options.sampled && Option.isSome(parent))
      const ofParent = Option.map(parent, (one) => one.sampled)
      if (isParentBased !== undefined && Option.isSome(ofParent)) return span(options.sampled)
      // A parent that is not sampled decides only for the samplers that follow it.
      if (!options.sampled && !Option.contains(ofParent, false)) return span(false)
      switch (sampler) {
        case "always_on":
          return span(true)
        case "always_off":
          return span(false)
        case "traceidratio": {
          const candidate = span(true)
          return isIncluded(candidate.traceId, tracesRatio) ? candidate : span(false)
        }
        default:
          return span(options.sampled && isBounded(startTime))
      }
    },
    context: tracer.context
  })
}

/** Batches that are on their way to the collector; further ones are dropped. */
const BATCHES = 4

const BATCH_TIMEOUT = Duration.seconds(5)

const METRICS_EVERY = Duration.seconds(15)

/** The time for the last batches at the end of the process. */
const SHUTDOWN_TIMEOUT = Duration.seconds(1)

/** The shortest interval of warnings about the collector, in milliseconds. */
const WARN_EVERY = 60_000

/** Requests that a monitor or a daemon sends all the time. */
const routine = /^\/(?:healthz|readyz|metrics|api\/nodes\/[^/]+\/internal\/heartbeat)$/

/** Answers a batch in place of the collector, so that batches never wait for each other. */
const drop = (request: HttpClientRequest.HttpClientRequest) =>
  HttpClientResponse.fromWeb(request, new Response(null, { status: 413 }))

/** Bounds what waits for a slow collector, and logs its failures once a minute. */
const makeCollector = Effect.gen(function* () {
  const client = yield* HttpClient.HttpClient
  let running = 0
  let warnedAt = Number.NEGATIVE_INFINITY
  const warn = Effect.fnUntraced(function* (why: string) {
    const now = yield* elapsedMillis
    if (now - warnedAt < WARN_EVERY) return
    warnedAt = now
    yield* Effect.logWarning(`traces and metrics are lost: ${why}; check OTEL_EXPORTER_OTLP_ENDPOINT`)
  })
  return HttpClient.transform(client, (send, request) =>
    Effect.suspend(() => {
      if (running >= BATCHES) return Effect.as(warn("the collector is too slow"), drop(request))
      running += 1
      return send.pipe(
        Effect.timeoutOrElse({
          duration: BATCH_TIMEOUT,
          orElse: () => Effect.as(warn("the collector does not respond in time"), drop(request))
        }),
        Effect.tap(({ status }) =>
          status >= 300 ? warn(`the collector responds with ${status}`) : Effect.void
        ),
        Effect.tapError((error) => warn(`the collector cannot be reached (${error.message})`)),
        Effect.ensuring(
          Effect.sync(() => {
            running -= 1
          })
        )
      )
    })
  )
})

/** Reads `name=value,...`, as OpenTelemetry defines it; values are percent-encoded. */
const headersOf = (text: string): Record<string, string> =>
  Object.fromEntries(
    text.split(",").flatMap((pair) => {
      const at = pair.indexOf("=")
      if (at < 1) return []
      const value = Option.getOrElse(decoded(pair.slice(at + 1).trim()), () => pair.slice(at + 1).trim())
      return [[pair.slice(0, at).trim(), value]]
    })
  )

const decoded = Option.liftThrowable(decodeURIComponent)

/** Exports over OTLP (HTTP, JSON) in bounded memory: a slow collector loses batches. Without one, no span is made. */
export const TelemetryLayer = (
  serviceName: "muster" | "muster-node",
  { otlpEndpoint, otlpHeaders, ...sampling }: Pick<ServiceSettings, keyof typeof otlp>
): Layer.Layer<never> => {
  if (otlpEndpoint === "") {
    return Layer.merge(
      Layer.succeed(References.TracerEnabled, false),
      Layer.succeed(HttpClient.TracerDisabledWhen, () => true)
    )
  }
  const target = (signal: "traces" | "metrics") => ({
    url: `${otlpEndpoint.replace(/\/+$/, "")}/v1/${signal}`,
    resource: { serviceName, serviceVersion: version },
    headers: headersOf(Redacted.value(otlpHeaders)),
    shutdownTimeout: SHUTDOWN_TIMEOUT
  })
  return Layer.mergeAll(
    Layer.effect(
      Tracer.Tracer,
      Effect.map(OtlpTracer.make(target("traces")), (tracer) => sampled(tracer, sampling))
    ),
    Layer.effectDiscard(OtlpMetrics.make({ ...target("metrics"), exportInterval: METRICS_EVERY })),
    Layer.succeed(ObserveEvery, METRICS_EVERY),
    Layer.succeed(HttpMiddleware.TracerDisabledWhen, ({ url }) => routine.test(requestPath(url))),
    // A query may have a ticket.
    Layer.succeed(UrlParams.CurrentRedactedNames, [/./])
  ).pipe(
    Layer.provide(OtlpExporter.layerFlusher),
    Layer.provide(OtlpSerialization.layerJson),
    Layer.provide(Layer.effect(HttpClient.HttpClient, makeCollector)),
    Layer.provide(connectTimeoutClient({ connections: BATCHES }))
  )
}
