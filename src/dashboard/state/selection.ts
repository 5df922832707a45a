/** The selected servers, and the one that the keyboard is at. */
import { signal } from "@preact/signals"
import { listed } from "./listed.ts"

export const selection = signal<ReadonlySet<string>>(new Set())
/** The position of the keyboard in the list; -1: none. */
export const active = signal(-1)

let anchor = -1

export const clearSelection = (): void => {
  selection.value = new Set()
  anchor = -1
}

export const toggle = (id: string): void => {
  const next = new Set(selection.value)
  if (!next.delete(id)) next.add(id)
  selection.value = next
  anchor = listed.value.indexOf(id)
}

/** Selects all servers from the last toggled one to this one. */
export const extendTo = (id: string): void => {
  const to = listed.value.indexOf(id)
  const from = anchor === -1 ? to : anchor
  const range = listed.value.slice(Math.min(from, to), Math.max(from, to) + 1)
  selection.value = new Set([...selection.value, ...range])
  if (anchor === -1) anchor = to
}

export const selectAll = (): void => {
  selection.value = new Set(listed.value)
}

export const retain = (isThere: (id: string) => boolean): void => {
  if ([...selection.value].every(isThere)) return
  selection.value = new Set([...selection.value].filter(isThere))
}
