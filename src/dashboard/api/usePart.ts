import { useEffect, useState } from "preact/hooks"
import { pauseBefore } from "./stream.ts"

/** Code that is loaded at its first use; the document has the addresses. */
interface Parts {
  readonly uplot: typeof import("../late/uplot.ts")
  readonly xterm: typeof import("../late/xterm.ts")
}

const ATTEMPTS = 3

const loaded: Partial<Parts> = {}
const loading = new Map<keyof Parts, Promise<boolean>>()
/** Of all parts. A browser does not load a failed module again at the same address, so that each attempt has its own. */
let failures = 0

const attempt = async <N extends keyof Parts>(name: N): Promise<boolean> => {
  const address = document.getElementById("app")?.dataset[name] ?? ""
  try {
    // The service that has sent the address sends the part.
    loaded[name] = (await import(failures === 0 ? address : `${address}&again=${failures}`)) as Parts[N]
    return true
  } catch {
    failures++
    return false
  }
}

const load = async (name: keyof Parts): Promise<boolean> => {
  for (let number = 1; number <= ATTEMPTS; number++) {
    if (await attempt(name)) return true
    if (number < ATTEMPTS) await new Promise((resolve) => setTimeout(resolve, pauseBefore(number)))
  }
  loading.delete(name)
  return false
}

const loadOnce = (name: keyof Parts): Promise<boolean> => {
  const under = loading.get(name) ?? load(name)
  loading.set(name, under)
  return under
}

export interface LoadedPart<N extends keyof Parts> {
  readonly part: Parts[N] | undefined
  /** Tries again, if the part has failed. */
  readonly again: (() => void) | undefined
}

/** Loads a part of the page's code at its first use. */
export const usePart = <N extends keyof Parts>(name: N): LoadedPart<N> => {
  const [outcome, setOutcome] = useState<boolean | undefined>(loaded[name] === undefined ? undefined : true)
  useEffect(() => {
    if (outcome !== undefined) return
    let isGone = false
    void loadOnce(name).then((isLoaded) => {
      if (!isGone) setOutcome(isLoaded)
    })
    return () => {
      isGone = true
    }
  }, [name, outcome])
  const again = outcome === false ? () => setOutcome(undefined) : undefined
  return { part: outcome === true ? loaded[name] : undefined, again }
}
