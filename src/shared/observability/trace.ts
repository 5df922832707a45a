/** Traces that cross fibers, processes and restarts (W3C Trace Context). Without an exporter nothing is recorded. */
import { Clock, Context, Effect, Exit, Option, References, Tracer } from "effect"
import { Headers, HttpTraceContext } from "effect/http"

export type TracePlace = Tracer.AnySpan | undefined

/** Returns the place of the current fiber, for a fiber that continues its work. */
export const tracePlace: Effect.Effect<TracePlace> = Effect.map(
  Effect.option(Effect.currentParentSpan),
  Option.getOrUndefined
)

/** Returns the header of the current span, if the span is recorded. */
export const traceparent: Effect.Effect<string | undefined> = Effect.withFiber((fiber) =>
  fiber.getRef(Tracer.Tracer) === Tracer.nativeTracer
    ? Effect.succeed(undefined)
    : Effect.map(Effect.option(Effect.currentSpan), (found) => {
        const span = Option.getOrUndefined(found)
        return span?.sampled === true ? HttpTraceContext.toHeaders(span).traceparent : undefined
      })
)

/** Runs an effect at a place of a trace, or outside every trace, for work that outlives its request. */
export const atPlace =
  (place: TracePlace) =>
  <A, E, R>(self: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    place === undefined
      ? // No effect requires a span, so that the context without it is that of the effect.
        Effect.updateContext(self, (context: Context.Context<R>) =>
          // Without a span there is nothing to omit, which would copy the context.
          Option.isNone(Context.getOption(context, Tracer.ParentSpan))
            ? context
            : (Context.omit(Tracer.ParentSpan)(context) as Context.Context<R>)
        )
      : Effect.provideService(self, Tracer.ParentSpan, place)

export const continueTrace = (header: string | undefined) => {
  const place =
    header === undefined
      ? undefined
      : Option.getOrUndefined(HttpTraceContext.w3c(Headers.fromInput({ traceparent: header })))
  return <A, E, R>(self: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    place === undefined ? self : atPlace(place)(self)
}

/** Runs an effect in a span, if spans are recorded: `Effect.withSpan` costs a stack trace even without an exporter. */
export const inSpan =
  (name: string, options?: Tracer.SpanOptionsNoTrace) =>
  <A, E, R>(self: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Effect.withFiber<A, E, R>((fiber) =>
      fiber.getRef(References.TracerEnabled) ? Effect.withSpan(self, name, options) : self
    )

/** A span that another fiber ends. */
export interface OpenSpan {
  /** Ends the span; a second end changes nothing. */
  end(exit?: Exit.Exit<unknown, unknown>): Effect.Effect<void>
}

/** Begins a span at the place of the current fiber. */
export const openSpan = (name: string, attributes: Record<string, unknown> = {}): Effect.Effect<OpenSpan> =>
  Effect.map(Effect.makeSpan(name, { attributes }), (span) => ({
    end: (exit: Exit.Exit<unknown, unknown> = Exit.void) =>
      Effect.map(Clock.Clock, (clock) => span.end(clock.currentTimeNanosUnsafe(), exit))
  }))
