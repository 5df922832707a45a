import type { View } from "../../dom/el.ts"

const styles = { dateStyle: "medium", timeStyle: "short", hour12: false } as const

const viewerZone = Intl.DateTimeFormat().resolvedOptions().timeZone

/** Returns a time in a zone; a browser may not know the zone. */
const timeIn = (at: string, zone: string): string | undefined => {
  try {
    return new Date(at).toLocaleString([], { ...styles, timeZone: zone })
  } catch {
    return undefined
  }
}

/** A time in the zone of the schedule and, if it is another one, in that of the viewer. */
export const bothTimes = (at: string, zone: string): View => {
  const own = timeIn(at, zone)
  const viewer = timeIn(at, viewerZone)
  return (
    <span class="both-times">
      <time dateTime={at}>{`${own ?? viewer} ${own === undefined ? viewerZone : zone}`}</time>
      {own !== undefined && zone !== viewerZone && (
        <span class="muted">{`${viewer} here (${viewerZone})`}</span>
      )}
    </span>
  )
}
