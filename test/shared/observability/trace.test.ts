import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, Fiber, Layer, Option, Redacted, References, Tracer } from "effect"
import { HttpClient, HttpClientResponse } from "effect/http"
import { type Sampling, sampled, TelemetryLayer } from "../../../src/app/telemetry.ts"
import {
  atPlace,
  continueTrace,
  inSpan,
  openSpan,
  tracePlace,
  traceparent
} from "../../../src/shared/observability/trace.ts"

const TRACE = "0af7651916cd43dd8448eb211c80319c"

/** A tracer that keeps the names of ended spans, and their traces. */
const recording = () => {
  const ended: Array<string> = []
  const tracer = Tracer.make({
    span: (options) => {
      const span = Tracer.nativeTracer.span(options)
      const end = span.end.bind(span)
      span.end = (time, exit) => {
        ended.push(`${span.name} ${span.traceId === TRACE ? "in" : "out of"} the trace`)
        end(time, exit)
      }
      return span
    }
  })
  return { ended, tracer }
}

describe("docs/running.md, traces", () => {
  it.effect("work is in a span if spans are recorded", () =>
    Effect.gen(function* () {
      const { ended, tracer } = recording()
      const work = Effect.fnUntraced(
        function* (id: string) {
          return `${id} in ${Option.getOrUndefined(yield* Effect.option(Effect.currentSpan))?.name}`
        },
        inSpan("work", { attributes: { kind: "a" } })
      )
      const recorded = Effect.provideService(work("one"), Tracer.Tracer, tracer)
      assert.strictEqual(yield* recorded, "one in work")
      assert.deepStrictEqual(ended, ["work out of the trace"])
      assert.strictEqual(
        yield* Effect.provideService(recorded, References.TracerEnabled, false),
        "one in undefined"
      )
      assert.strictEqual(ended.length, 1)
    })
  )

  it.effect("work continues the trace of its header, and work that outlives a request leaves the trace", () =>
    Effect.gen(function* () {
      const { ended, tracer } = recording()
      const outliving = Effect.void.pipe(Effect.withSpan("later"), atPlace(undefined))
      yield* Effect.gen(function* () {
        const place = yield* tracePlace
        assert.match((yield* traceparent) ?? "", new RegExp(`^00-${TRACE}-[0-9a-f]{16}-01$`))
        const span = yield* openSpan("opened")
        yield* Fiber.join(yield* Effect.forkChild(span.end()))
        yield* outliving
        yield* atPlace(place)(Effect.void.pipe(Effect.withSpan("placed")))
      }).pipe(
        Effect.withSpan("first"),
        continueTrace(`00-${TRACE}-b7ad6b7169203331-01`),
        Effect.provideService(Tracer.Tracer, tracer)
      )
      assert.deepStrictEqual(ended, [
        "opened in the trace",
        "later out of the trace",
        "placed in the trace",
        "first in the trace"
      ])
      for (const header of [undefined, "", "00-1-2-3", `00-${"0".repeat(32)}-b7ad6b7169203331-01`]) {
        yield* Effect.void.pipe(
          Effect.withSpan("other"),
          continueTrace(header),
          Effect.provideService(Tracer.Tracer, tracer)
        )
        assert.strictEqual(ended.at(-1), "other out of the trace")
      }
    })
  )

  it("OTEL_TRACES_SAMPLER chooses the requests that are recorded; by default 50 a second", () => {
    const external = (isSampled: boolean, traceId = TRACE) =>
      Option.some(Tracer.externalSpan({ spanId: "b7ad6b7169203331", traceId, sampled: isSampled }))
    type Parent = ReturnType<typeof external> | Option.Option<never>
    /** Returns how many of 100 requests of one second are recorded. */
    const recorded = (tracesSampler: Sampling["tracesSampler"], parent: Parent, tracesRatio = 1) => {
      const tracer = sampled(Tracer.nativeTracer, { tracesSampler, tracesRatio })
      return Array.from({ length: 100 }, (_, index) =>
        tracer.span({
          name: "request",
          kind: "server",
          parent,
          annotations: Context.empty(),
          links: [],
          startTime: BigInt(index),
          root: Option.isNone(parent),
          sampled: Option.isNone(parent) || parent.value.sampled
        })
      ).filter((one) => one.sampled).length
    }
    const none = Option.none()
    assert.deepStrictEqual(
      [none, external(true), external(false)].map((parent) => recorded("", parent)),
      [50, 50, 0]
    )
    assert.deepStrictEqual(
      [none, external(true), external(false)].map((parent) => recorded("always_on", parent)),
      [100, 100, 100]
    )
    assert.deepStrictEqual(
      [none, external(true), external(false)].map((parent) => recorded("parentbased_always_on", parent)),
      [100, 100, 0]
    )
    assert.deepStrictEqual(
      [none, external(true)].map((parent) => recorded("always_off", parent)),
      [0, 0]
    )
    assert.strictEqual(recorded("parentbased_always_off", external(true)), 100)
    // By the end of the id of the trace, so that all processes decide the same.
    const low = external(true, `${"f".repeat(16)}${"0".repeat(15)}1`)
    const high = external(true, `${"0".repeat(16)}${"f".repeat(16)}`)
    assert.deepStrictEqual(
      [low, high].map((parent) => recorded("traceidratio", parent, 0.5)),
      [100, 0]
    )
    assert.strictEqual(recorded("parentbased_traceidratio", high, 0.5), 100)
    assert.strictEqual(recorded("traceidratio", none, 0), 0)
    const half = recorded("traceidratio", none, 0.5)
    assert.isTrue(half > 10 && half < 90, `${half} of 100`)
  })

  it.effect("without a collector no span is made, and no request has a trace", () =>
    Effect.gen(function* () {
      const { ended, tracer } = recording()
      const client = HttpClient.make((request) => {
        assert.deepStrictEqual(Object.keys(request.headers), [])
        return Effect.succeed(HttpClientResponse.fromWeb(request, new Response("")))
      })
      const none = TelemetryLayer("muster", {
        otlpEndpoint: "",
        otlpHeaders: Redacted.make(""),
        tracesSampler: "",
        tracesRatio: 1
      })
      yield* client
        .get("http://127.0.0.1/")
        .pipe(
          Effect.withSpan("request"),
          Effect.provide(Layer.merge(none, Layer.succeed(Tracer.Tracer, tracer)))
        )
      assert.isUndefined(yield* traceparent)
      assert.deepStrictEqual(ended, [])
    })
  )
})
