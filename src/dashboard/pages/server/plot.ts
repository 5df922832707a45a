import { effect } from "@preact/signals"
import type uPlot from "uplot"
import { colour, theme } from "../../state/theme.ts"

/** Times in seconds, then one row of values for each line. */
export type Points = [Array<number>, ...Array<Array<number | null>>]

export interface Look {
  readonly colours: ReadonlyArray<string>
  readonly axisText: (value: number) => string
  readonly steps?: ReadonlyArray<number>
}

export interface Plot {
  readonly set: (points: Points) => void
  readonly close: () => void
}

const HEIGHT = 108
/** Seconds that a plot spans at least: the first figures are at its right. */
const SHORTEST = 60
const FONT = "10.5px ui-sans-serif, system-ui, sans-serif"

/** From the first figure, at least so many seconds before the last. */
const spanOf = ({ data: [times] }: uPlot): [number, number] => {
  const last = times.at(-1) ?? Date.now() / 1000
  return [Math.min(times[0] ?? last, last - SHORTEST), last]
}

const optionsOf = (width: number, { axisText, colours, steps }: Look): uPlot.Options => {
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
        values: (_, times) => times.map((at) => new Date(at * 1000).toLocaleTimeString([], { hour12: false }))
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

export const openPlot = (
  { UPlot }: typeof import("../../late/uplot.ts"),
  element: HTMLElement,
  look: Look
): Plot => {
  let points: Points = [[], ...look.colours.map(() => [])]
  let plot: uPlot | undefined
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
