/** Where Linux tells the limits of a process. */
export const LIMITS = "/proc/self/limits"

/**
 * How many files a process may have open; undefined: as many as it likes, or the text does not tell.
 *
 * @param limits text of {@link LIMITS}
 */
export const openFilesIn = (limits: string): number | undefined => {
  const soft = /^Max open files +(\d+)/m.exec(limits)?.[1]
  return soft === undefined ? undefined : Number(soft)
}
