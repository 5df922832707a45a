import { useEffect, useRef, useState } from "preact/hooks"
import type { ServerStats } from "../../api/types.ts"
import { type LoadedPart, usePart } from "../../api/usePart.ts"
import type { View } from "../../dom/el.ts"
import { bytes, duration, megabytes } from "../../dom/format.ts"
import { missingPart } from "../../parts/parts.tsx"
import { makeStatsStream, type Sample, samples } from "../../state/stats.ts"
import { openPlot, type Plot, type Points } from "./plot.ts"

const INTERVAL = 2
/** Figures that a plot shows: five minutes. */
const MOST = 150

const POWERS = Array.from({ length: 50 }, (_, power) => 2 ** power)

/** One plot: the rows of values of a sample, and the text of the newest. */
interface Kind {
  readonly title: string
  readonly colours: ReadonlyArray<string>
  readonly valuesOf: (sample: Sample, before: Sample | undefined) => ReadonlyArray<number | null>
  readonly textOf: (stats: ServerStats, values: ReadonlyArray<number | null>) => string
  readonly axisText: (value: number) => string
  /** Steps of the axis; absent: decimal ones. */
  readonly steps?: ReadonlyArray<number>
  readonly isKnown: (stats: ServerStats) => boolean
}

const rate = (now: number | null, then: number | null | undefined, seconds: number): number | null =>
  now === null || then === null || then === undefined || seconds <= 0
    ? null
    : Math.max(0, (now - then) / seconds)

/** Bytes of an axis, whose steps are powers of two. */
const roundBytes = (count: number): string => bytes(count).replace(".0", "")

const notEnforced = (warnings: ServerStats["warnings"] = []): string =>
  warnings.some(({ code }) => code === "limits_not_enforced") ? " (not enforced)" : ""

const kinds: ReadonlyArray<Kind> = [
  {
    title: "CPU",
    colours: ["accent"],
    valuesOf: ({ stats }) => [stats.cpu_absolute],
    textOf: (stats, [cpu]) =>
      cpu === null || cpu === undefined
        ? "unknown"
        : `${cpu.toFixed(1)}%${stats.cpu_absolute_limit > 0 ? ` of ${stats.cpu_absolute_limit}%` : ""}`,
    axisText: (value) => `${Math.round(value * 10) / 10}%`,
    isKnown: () => true
  },
  {
    title: "Memory",
    colours: ["violet"],
    valuesOf: ({ stats }) => [stats.memory_bytes],
    textOf: ({ memory_bytes, memory_limit_bytes, warnings }) =>
      memory_bytes === null
        ? "unknown"
        : `${bytes(memory_bytes)}${memory_limit_bytes > 0 ? ` of ${bytes(memory_limit_bytes)}` : ""}${notEnforced(warnings)}`,
    axisText: roundBytes,
    steps: POWERS,
    isKnown: () => true
  },
  {
    title: "Network",
    colours: ["green", "blue"],
    valuesOf: ({ at, stats }, before) => {
      const seconds = before === undefined ? 0 : (at - before.at) / 1000
      return [
        rate(stats.network.rx_bytes, before?.stats.network.rx_bytes, seconds),
        rate(stats.network.tx_bytes, before?.stats.network.tx_bytes, seconds)
      ]
    },
    textOf: (_, [rx, tx]) => `${bytes(rx ?? 0)}/s in, ${bytes(tx ?? 0)}/s out`,
    axisText: (value) => `${roundBytes(value)}/s`,
    steps: POWERS,
    isKnown: ({ network }) => network.rx_bytes !== null
  }
]

const pointsOf = ({ colours, valuesOf }: Kind, all: ReadonlyArray<Sample>): Points => {
  const rows = all.map((sample, index) => valuesOf(sample, all[index - 1]))
  return [all.map(({ at }) => at / 1000), ...colours.map((_, line) => rows.map((row) => row[line] ?? null))]
}

const Chart = (props: {
  readonly code: LoadedPart<"uplot">["part"]
  readonly kind: Kind
  readonly all: ReadonlyArray<Sample>
}): View => {
  const { all, code, kind } = props
  const element = useRef<HTMLDivElement>(null)
  const plot = useRef<Plot>(undefined)
  useEffect(() => {
    if (element.current === null || code === undefined) return
    const opened = openPlot(code, element.current, kind)
    plot.current = opened
    opened.set(pointsOf(kind, all))
    return opened.close
  }, [code])
  useEffect(() => plot.current?.set(pointsOf(kind, all)), [all])
  const newest = all.at(-1)
  const text = newest === undefined ? "" : kind.textOf(newest.stats, kind.valuesOf(newest, all.at(-2)))
  return (
    <figure class="plot">
      <figcaption>
        <strong>{kind.title}</strong>
        <span class="muted">{text}</span>
      </figcaption>
      <div ref={element} role="img" aria-label={`${kind.title} of the last minutes: ${text}`} />
    </figure>
  )
}

export const Plots = ({ id, isUp }: { readonly id: string; readonly isUp: boolean }): View => {
  const [all, setAll] = useState<ReadonlyArray<Sample>>([])
  const { again, part } = usePart("uplot")
  useEffect(() => {
    if (!isUp) return
    const stream = makeStatsStream(INTERVAL, (server, sample) => {
      samples.set(server, sample)
      setAll((before) => [...before.slice(1 - MOST), sample])
    })
    stream.want([id], 0)
    return stream.close
  }, [id, isUp])
  const newest = all.at(-1)?.stats
  return (
    <div class="card side-card">
      <div class="plot-head">
        <strong>Live figures</strong>
        <span class="muted">
          {isUp && newest?.uptime !== null && newest?.uptime !== undefined
            ? `up ${duration(newest.uptime)}`
            : ""}
        </span>
      </div>
      {isUp && again !== undefined && missingPart("The code of the plots", again)}
      {isUp ? (
        kinds
          .filter(({ isKnown }) => newest === undefined || isKnown(newest))
          .map((kind) => <Chart key={kind.title} code={part} kind={kind} all={all} />)
      ) : (
        <p class="muted">No process runs. The figures begin with the next start.</p>
      )}
      {newest?.warnings?.map(({ code, detail }) => (
        <p key={code} class="problem small">{`Warning: ${detail}.`}</p>
      ))}
      {newest?.network.rx_bytes === null && (
        <p class="muted small">This node does not measure the network of processes.</p>
      )}
      {newest !== undefined && newest.disk_bytes !== null && (
        <p class="muted small">{`Disk ${megabytes(newest.disk_bytes)}${newest.disk_max > 0 ? ` of ${megabytes(newest.disk_max)}` : ""}`}</p>
      )}
    </div>
  )
}
