import { useEffect, useState } from "preact/hooks"

/** Loads code in a file of its own at its first use: "failed" until the page is loaded again. */
export const useLate = <A>(load: () => Promise<A>): A | "failed" | undefined => {
  const [loaded, setLoaded] = useState<{ readonly code: A | "failed" }>()
  useEffect(() => {
    let isGone = false
    load().then(
      (code) => isGone || setLoaded({ code }),
      () => isGone || setLoaded({ code: "failed" })
    )
    return () => {
      isGone = true
    }
  }, [])
  return loaded?.code
}
