/** Numbers and times as people read them. */

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"] as const

/** Bytes in the largest unit that leaves a whole part. */
export const bytes = (count: number): string => {
  const power = Math.min(UNITS.length - 1, count < 1 ? 0 : Math.floor(Math.log2(count) / 10))
  const value = count / 1024 ** power
  return `${value >= 100 || power === 0 ? value.toFixed(0) : value.toFixed(1)} ${UNITS[power]}`
}

/** Bytes in MB, the unit of the limit of disks. */
export const megabytes = (count: number): string => `${Math.round(count / 1e5) / 10} MB`

/** MiB of a limit; 0: no limit. */
export const mebibytes = (count: number): string => (count === 0 ? "no limit" : bytes(count * 1024 * 1024))

export const percent = (share: number): string => `${Math.round(share * 100)}%`

/** A duration with its two largest units. */
export const duration = (milliseconds: number): string => {
  const seconds = Math.max(0, Math.floor(milliseconds / 1000))
  if (seconds < 60) return `${seconds} s`
  const minutes = Math.floor(seconds / 60)
  if (minutes < 60) return `${minutes} min`
  const hours = Math.floor(minutes / 60)
  const rest = (amount: number, unit: string) => (amount === 0 ? "" : ` ${amount} ${unit}`)
  if (hours < 24) return `${hours} h${rest(minutes % 60, "min")}`
  return `${Math.floor(hours / 24)} d${rest(hours % 24, "h")}`
}

/** A short duration with tenths, for steps. */
export const shortDuration = (milliseconds: number): string =>
  milliseconds < 9950 ? `${(milliseconds / 1000).toFixed(1)} s` : duration(milliseconds)

export const ago = (time: string, now: number): string => `${duration(now - Date.parse(time))} ago`

export const clock = (time: string): string => new Date(time).toLocaleTimeString([], { hour12: false })

export const dateTime = (time: string): string =>
  new Date(time).toLocaleString([], { dateStyle: "medium", timeStyle: "medium", hour12: false })

export const count = (number: number): string => number.toLocaleString("en")

export const counted = (number: number, noun: string): string =>
  `${count(number)} ${noun}${number === 1 ? "" : "s"}`

export const labelText = (name: string, value: string): string => (value === "" ? name : `${name}=${value}`)

/** Returns the labels of a server, or the conditions of a selector on labels, as texts. */
export const labelTexts = (
  labels: Readonly<Record<string, string>> | ReadonlyArray<string> = []
): ReadonlyArray<string> =>
  Array.isArray(labels) ? labels : Object.entries(labels).map(([name, value]) => labelText(name, value))
