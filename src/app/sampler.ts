import { Option, Tracer } from "effect"
import type { ServiceSettings } from "../shared/config/service.ts"

/** Traces that begin or continue here in a second without a sampler; further requests are not traced. */
const TRACES_PER_SECOND = 50

export type Sampling = Pick<ServiceSettings, "tracesSampler" | "tracesRatio">

/** Admits {@link TRACES_PER_SECOND} requests a second. */
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
