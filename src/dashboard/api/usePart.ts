import { useEffect, useState } from "preact/hooks"
import { pauseBefore } from "./stream.ts"

/** Code that is loaded at its first use; the document has the addresses. */
interface Parts {
  readonly uplot: typeof import("../late/uplot.ts")
  readonly xterm: typeof import("../late/xterm.ts")
}

const ATTEMPTS = 3

const loading = new Map<keyof Parts, Promise<Parts[keyof Parts] | undefined>>()
/** Of all parts. A browser does not load a failed module again at the same address, so that each attempt has its own. */
let failures = 0

const load = async (name: keyof Parts): Promise<Parts[keyof Parts] | undefined> => {
  const address = document.getElementById("app")?.dataset[name] ?? ""
  for (let number = 1; number <= ATTEMPTS; number++) {
    try {
      return await import(failures === 0 ? address : `${address}&again=${failures}`)
    } catch {
      failures++
    }
    if (number < ATTEMPTS) await new Promise((resolve) => setTimeout(resolve, pauseBefore(number)))
  }
  loading.delete(name)
  return undefined
}

export interface LoadedPart<N extends keyof Parts> {
  readonly part: Parts[N] | undefined
  /** Tries again, if the part has failed. */
  readonly again: (() => void) | undefined
}

/** Loads a part of the page's code at its first use. */
export const usePart = <N extends keyof Parts>(name: N): LoadedPart<N> => {
  const [part, setPart] = useState<Parts[N] | undefined>(undefined)
  const [hasFailed, setFailed] = useState(false)
  useEffect(() => {
    if (hasFailed) return
    let isGone = false
    const under = loading.get(name) ?? load(name)
    loading.set(name, under)
    void under.then((loaded) => {
      if (isGone) return
      // The service that has sent the address sends the part.
      setPart(loaded as Parts[N] | undefined)
      setFailed(loaded === undefined)
    })
    return () => {
      isGone = true
    }
  }, [name, hasFailed])
  return { part, again: hasFailed ? () => setFailed(false) : undefined }
}
