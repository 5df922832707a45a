/** One server as its page shows it: read again after each of its events. */
import { useEffect, useState } from "preact/hooks"
import { type Failure, get, segment } from "../../api/http.ts"
import type { Server } from "../../api/types.ts"
import { onEvent } from "../../state/live.ts"
import { rowOf } from "../../state/rows.ts"
import { changed, put, rows } from "../../state/servers.ts"
import { whileVisible } from "../../state/whileVisible.ts"

const FIELDS =
  "status,limits,software,labels,name,install,last_crash,ports,expires_at,updated_at,restart,run,definition,problem,save"

/** Milliseconds in which the events of a server gather. */
const GATHER = 120

/** Milliseconds between two readings without an event. */
const EVERY = 15_000

export interface Detail {
  readonly server: Server | undefined
  readonly failure: Failure | undefined
  readonly readings: number
  readonly reload: () => void
}

export const useDetail = (id: string): Detail => {
  const [state, setState] = useState<Omit<Detail, "reload">>({
    server: undefined,
    failure: undefined,
    readings: 0
  })
  const [wish, setWish] = useState(0)
  useEffect(() => {
    const stop = new AbortController()
    void get<Server>(`/api/servers/${segment(id)}?include=${FIELDS}`, stop.signal).then((reply) => {
      if (stop.signal.aborted) return
      setState((before) =>
        reply.ok
          ? { server: reply.body, failure: undefined, readings: before.readings + 1 }
          : {
              server: reply.code === 0 ? before.server : undefined,
              failure: reply,
              readings: before.readings + 1
            }
      )
      if (!reply.ok) return
      put(rowOf(reply.body, rows.get(reply.body.id)))
      changed()
    })
    return () => stop.abort()
  }, [id, wish])
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined
    const ended = onEvent(({ Data }) => {
      if (Data.server_id !== id) return
      timer ??= setTimeout(() => {
        timer = undefined
        setWish((before) => before + 1)
      }, GATHER)
    })
    return () => {
      clearTimeout(timer)
      ended()
    }
  }, [id])
  // Settings that other callers change have no event.
  useEffect(() => whileVisible(EVERY, async () => setWish((before) => before + 1)), [id])
  return { ...state, reload: () => setWish((before) => before + 1) }
}

export const tabs = ["console", "changes", "installation", "crashes", "events"] as const
export type Tab = (typeof tabs)[number]
