/** The limits of a process on Linux. */
export const LIMITS = "/proc/self/limits"

/** Returns how many files a process may have open, if limited and known, from the text of {@link LIMITS}. */
export const openFilesIn = (limits: string): number | undefined => {
  const soft = /^Max open files +(\d+)/m.exec(limits)?.[1]
  return soft === undefined ? undefined : Number(soft)
}
