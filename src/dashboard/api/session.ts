/** The caller of this tab and its rights. */
import { signal } from "@preact/signals"
import { endedBecause, forgetKey, get, rememberKey, request } from "./http.ts"
import type { Right } from "./types.ts"

/** The key of the session. */
export interface Caller {
  readonly id: string
  readonly name: string
  readonly scope: string
  readonly rights: ReadonlyArray<Right>
}

export const caller = signal<Caller | undefined>(undefined)

const SELF = "/api/keys/self"

/** Signs in; returns the reason of a failure. */
export const signIn = async (text: string): Promise<string | undefined> => {
  const reply = await request<Caller>("GET", SELF, { key: text })
  if (!reply.ok) return reply.code === 401 ? "The service does not know this key." : reply.detail
  caller.value = reply.body
  endedBecause.value = ""
  rememberKey(text)
  return undefined
}

/** Reads the rights of a key that the tab has already. */
export const resumeSession = async (): Promise<boolean> => {
  const reply = await get<Caller>(SELF)
  if (!reply.ok) {
    if (reply.code === 403) forgetKey(`${reply.detail}. ${reply.hint}`)
    return false
  }
  caller.value = reply.body
  return true
}

export const signOut = (reason = ""): void => {
  caller.value = undefined
  forgetKey(reason)
}

/** Why the key may not do this; undefined: it may. */
export const whyNot = (right: Right): string | undefined => {
  const known = caller.value
  return known === undefined || known.rights.includes(right)
    ? undefined
    : `The key “${known.name}” lacks the right ${right}.`
}
