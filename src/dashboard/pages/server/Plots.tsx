import { effect } from "@preact/signals"
import { useEffect, useRef, useState } from "preact/hooks"
import UPlot from "uplot"
import type { ServerStats } from "../../api/types.ts"
import type { View } from "../../dom/el.ts"
import { bytes, duration, megabytes } from "../../dom/format.ts"
import { makeStatsStream, type Sample, samples } from "../../state/stats.ts"
import { colour, theme } from "../../state/theme.ts"

const INTERVAL = 2
/** Figures that a plot shows: five minutes. */
const MOST = 150

const POWERS = Array.from({ length: 50 }, (_, power) => 2 ** power)

/** Times in seconds, then one row of values for each line. */
type Points = [Array<number>, ...Array<Array<number | null>>]

interface Look {
  readonly colours: ReadonlyArray<string>
  readonly axisText: (value: number) => string
  /** Steps of the axis; absent: decimal ones. */
  readonly steps?: ReadonlyArray<number>
}

interface Plot {
  readonly set: (points: Points) => void
  readonly close: () => void
}

const HEIGHT = 108
/** Half of the width of a time below a plot, in pixels. */
const HALF_TIME = 24
/** Seconds that a plot spans at least: the first figures are at its right. */
const SHORTEST = 60
const FONT = "10.5px ui-sans-serif, system-ui, sans-serif"

/** From the first figure, at least so many seconds before the last. */
const spanOf = ({ data: [times] }: UPlot): [number, number] => {
  const last = times.at(-1) ?? Date.now() / 1000
  return [Math.min(times[0] ?? last, last - SHORTEST), last]
}

const optionsOf = (width: number, { axisText, colours, steps }: Look): UPlot.Options => {
  const axis = {
    stroke: colour("muted"),
    font: FONT,
    grid: { stroke: colour("line"), width: 1 },
    ticks: { show: false }
  }
  return {
    width,
    height: HEIGHT,
    padding: [6, 24, 0, 0],
    legend: { show: false },
    cursor: { sync: { key: "server" }, drag: { x: false, y: false }, points: { size: 6 } },
    scales: {
      x: { time: true, range: spanOf },
      y: { range: (_, __, highest) => [0, Math.max(1, (highest ?? 1) * 1.15)] }
    },
    axes: [
      {
        ...axis,
        size: 22,
        space: 80,
        // A time at the left edge would stand over the values.
        values: (plot, times) =>
          times.map((at) =>
            plot.valToPos(at, "x") < HALF_TIME
              ? ""
              : new Date(at * 1000).toLocaleTimeString([], { hour12: false })
          )
      },
      {
        ...axis,
        size: 62,
        space: 26,
        ...(steps !== undefined && { incrs: [...steps] }),
        // Without a figure the axis has no scale.
        values: ({ data: [times] }, values) =>
          values.map((value) => (times.length === 0 ? "" : axisText(value)))
      }
    ],
    series: [
      {},
      ...colours.map((name) => ({
        stroke: colour(name),
        width: 1.5,
        fill: `color-mix(in srgb, ${colour(name)} 10%, transparent)`,
        points: { show: false }
      }))
    ]
  }
}

const openPlot = (element: HTMLElement, look: Look): Plot => {
  let points: Points = [[], ...look.colours.map(() => [])]
  let plot: UPlot | undefined
  const drawn = effect(() => {
    theme.value
    plot?.destroy()
    plot = new UPlot(optionsOf(element.clientWidth, look), points, element)
  })
  const sized = new ResizeObserver(() => plot?.setSize({ width: element.clientWidth, height: HEIGHT }))
  sized.observe(element)
  return {
    set: (next) => {
      points = next
      plot?.setData(next)
    },
    close: () => {
      drawn()
      sized.disconnect()
      plot?.destroy()
    }
  }
}

/** One plot: the rows of values of a sample, and the text of the newest. */
interface Kind extends Look {
  readonly title: string
  readonly valuesOf: (sample: Sample, before: Sample | undefined) => ReadonlyArray<number | null>
  readonly textOf: (stats: ServerStats, values: ReadonlyArray<number | null>) => string
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

const Chart = ({ all, kind }: { readonly all: ReadonlyArray<Sample>; readonly kind: Kind }): View => {
  const element = useRef<HTMLDivElement>(null)
  const plot = useRef<Plot>(undefined)
  useEffect(() => {
    if (element.current === null) return
    const opened = openPlot(element.current, kind)
    plot.current = opened
    opened.set(pointsOf(kind, all))
    return opened.close
  }, [])
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
      {isUp ? (
        kinds
          .filter(({ isKnown }) => newest === undefined || isKnown(newest))
          .map((kind) => <Chart key={kind.title} kind={kind} all={all} />)
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
