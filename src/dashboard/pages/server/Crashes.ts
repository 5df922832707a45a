import { useEffect, useState } from "preact/hooks"
import { get, segment } from "../../api/http.ts"
import type { CrashRecord } from "../../api/types.ts"
import { details, div, p, pre, span, summary, time, type View } from "../../dom/el.ts"
import { dateTime, duration } from "../../dom/format.ts"
import { empty } from "../../parts/parts.ts"

const Crash = (crash: CrashRecord, isOpen: boolean): View =>
  details(
    { key: crash.id, class: "crash", open: isOpen },
    summary(
      {},
      span({ class: "dot is-unknown", "aria-hidden": "true" }),
      time({ dateTime: crash.crashed_at }, dateTime(crash.crashed_at)),
      span({ class: "crash-reason" }, crash.reason),
      crash.signal !== undefined && span({ class: "label" }, crash.signal),
      crash.out_of_memory && span({ class: "label" }, "out of memory"),
      crash.uptime_seconds !== null &&
        span({ class: "muted" }, `after ${duration(crash.uptime_seconds * 1000)}`)
    ),
    crash.lines.length === 0
      ? p({ class: "muted" }, "It wrote no lines.")
      : pre(
          { class: "lines", tabIndex: 0, "aria-label": "The last lines before the crash" },
          crash.lines.join("\n")
        )
  )

/** The crashes of a server, newest first, each with its last lines. */
export const Crashes = ({ id, readings }: { readonly id: string; readonly readings: number }): View => {
  const [crashes, setCrashes] = useState<ReadonlyArray<CrashRecord> | undefined>(undefined)
  const [problem, setProblem] = useState("")
  useEffect(() => {
    const stop = new AbortController()
    void get<ReadonlyArray<CrashRecord>>(`/api/servers/${segment(id)}/crashes`, stop.signal).then((reply) => {
      if (reply.ok) setCrashes(reply.body)
      else if (!stop.signal.aborted) setProblem(reply.detail)
    })
    return () => stop.abort()
  }, [id, readings])
  if (crashes === undefined) {
    return div(
      { class: "card panel" },
      p({ class: "muted" }, problem === "" ? "Loading the crashes" : problem)
    )
  }
  return crashes.length === 0
    ? empty(
        "check",
        "No crash",
        "This server has not ended by itself. Its crashes appear here with their last lines."
      )
    : div(
        { class: "card panel crashes" },
        crashes.map((crash, index) => Crash(crash, index === 0))
      )
}
