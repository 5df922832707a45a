import { LONGEST_WAIT_SECONDS } from "../../contract/api/OperationsGroup.ts"

/** Returns the seconds of `Prefer: wait=N` (RFC 7240), and ignores an unreadable preference. */
export const preferredWait = (prefer: string | undefined): number | undefined => {
  const seconds = Number(/(?:^|[,;])\s*wait\s*=\s*"?(\d{1,9})"?\s*(?:[,;]|$)/i.exec(prefer ?? "")?.[1] ?? 0)
  return seconds < 1 ? undefined : Math.min(seconds, LONGEST_WAIT_SECONDS)
}
