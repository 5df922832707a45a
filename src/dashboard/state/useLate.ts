import { useEffect, useState } from "preact/hooks"
import { failed } from "./notices.ts"

/** Loads code in a file of its own at its first use. @param name the subject of the message after a failure */
export const useLate = <A>(name: string, load: () => Promise<A>): A | undefined => {
  const [loaded, setLoaded] = useState<{ readonly code: A }>()
  useEffect(() => {
    let isGone = false
    load().then(
      (code) => isGone || setLoaded({ code }),
      () =>
        isGone ||
        failed(`${name} could not be loaded`, {
          detail: "The connection broke.",
          hint: "Load the page again."
        })
    )
    return () => {
      isGone = true
    }
  }, [])
  return loaded?.code
}
