import { useEffect, useState } from "preact/hooks"
import { get, type Reply } from "./http.ts"

/** Reads a path, and again with each change of `again`. Returns undefined until the first answer. */
export const useGet = <A>(path: string, again: unknown = 0): Reply<A> | undefined => {
  const [reply, setReply] = useState<Reply<A> | undefined>(undefined)
  useEffect(() => {
    const stop = new AbortController()
    void get<A>(path, stop.signal).then((read) => {
      if (!stop.signal.aborted) setReply(read)
    })
    return () => stop.abort()
  }, [path, again])
  return reply
}
