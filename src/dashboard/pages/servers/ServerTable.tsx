import { useSignalEffect } from "@preact/signals"
import { useEffect, useRef, useState } from "preact/hooks"
import { classes, type View } from "../../dom/el.ts"
import { type Column, columns, filter, isColumn, setFilter } from "../../state/filter.ts"
import { active, clearSelection, extendTo, listed, selectAll, selection, toggle } from "../../state/listed.ts"
import { addressOf, go } from "../../state/router.ts"
import { changes, rows } from "../../state/servers.ts"
import { keep, makeStatsStream, sampled, samples } from "../../state/stats.ts"
import { ServerRow } from "./ServerRow.tsx"

/** Heights of a row in pixels, as in the style sheet. */
const HEIGHT = 38
const NARROW_HEIGHT = 66
/** Rows drawn before and after those that are visible. */
const BEYOND = 8
/** Rows by which the window of drawn rows moves. */
const STEP = 4
/** Seconds between two figures of a server. */
const INTERVAL = 5

const narrow = matchMedia("(max-width: 760px)")

const shownColumns = Object.keys(columns).filter(
  (column): column is Column => isColumn(column) && column !== "created"
)

const Header = (): View => {
  const { descending, sort } = filter.value
  const all = listed.value.length > 0 && selection.value.size >= listed.value.length
  return (
    <div class="row row-head" role="row" aria-rowindex={1}>
      <div class="cell cell-check" role="columnheader">
        <button
          type="button"
          class={classes("check", all && "is-checked", !all && selection.value.size > 0 && "is-mixed")}
          role="checkbox"
          aria-checked={all ? "true" : selection.value.size > 0 ? "mixed" : "false"}
          aria-label="Select all servers of the list"
          onClick={() => (all ? clearSelection() : selectAll())}
        />
      </div>
      {shownColumns.map((column) => (
        <div
          key={column}
          class={`cell cell-${column}`}
          role="columnheader"
          aria-sort={sort === column ? (descending ? "descending" : "ascending") : "none"}
        >
          <button
            type="button"
            class={classes("sort", sort === column && "is-sorted")}
            onClick={() =>
              setFilter(
                sort === column
                  ? { descending: !descending }
                  : { sort: column, descending: column === "memory" || column === "cpu" }
              )
            }
          >
            {columns[column]}
            <span class="sort-mark" aria-hidden="true">
              {sort === column ? (descending ? "↓" : "↑") : ""}
            </span>
          </button>
        </div>
      ))}
    </div>
  )
}

const onKeyDown = (event: KeyboardEvent, page: number): void => {
  const ids = listed.value
  const last = ids.length - 1
  const at = active.value
  const moves: Readonly<Record<string, number>> = {
    ArrowDown: Math.min(last, at + 1),
    ArrowUp: Math.max(0, at - 1),
    PageDown: Math.min(last, at + page),
    PageUp: Math.max(0, at - page),
    Home: 0,
    End: last
  }
  const to = moves[event.key]
  const id = ids[at]
  if (to !== undefined) {
    active.value = to
    const reached = ids[to]
    if (event.shiftKey && reached !== undefined) extendTo(reached)
  } else if (event.key === "Enter" && id !== undefined) go(addressOf.server(id))
  else if (event.key === " " && id !== undefined) event.shiftKey ? extendTo(id) : toggle(id)
  else if (event.key === "a" && (event.ctrlKey || event.metaKey)) selectAll()
  else if (event.key === "Escape" && selection.value.size > 0) clearSelection()
  else return
  event.preventDefault()
  event.stopPropagation()
}

/** The list of servers: only the rows that are visible exist. */
export const ServerTable = (): View => {
  const scroller = useRef<HTMLDivElement>(null)
  const [top, setTop] = useState(0)
  const [size, setSize] = useState(800)
  const [height, setHeight] = useState(narrow.matches ? NARROW_HEIGHT : HEIGHT)
  const stream = useRef<ReturnType<typeof makeStatsStream>>(undefined)

  useEffect(() => {
    const opened = makeStatsStream(INTERVAL, keep)
    stream.current = opened
    const element = scroller.current
    const resized = new ResizeObserver(() => setSize(element?.clientHeight ?? 800))
    if (element !== null) resized.observe(element)
    const widthChanged = () => setHeight(narrow.matches ? NARROW_HEIGHT : HEIGHT)
    narrow.addEventListener("change", widthChanged)
    if (active.peek() >= 0) element?.focus({ preventScroll: true })
    return () => {
      opened.close()
      resized.disconnect()
      narrow.removeEventListener("change", widthChanged)
    }
  }, [])

  // The keyboard's row stays visible.
  useSignalEffect(() => {
    const element = scroller.current
    const at = active.value
    if (element === null || at < 0) return
    const from = at * height
    const head = narrow.matches ? 0 : HEIGHT
    if (from < element.scrollTop) element.scrollTop = from
    else if (from + height > element.scrollTop + element.clientHeight - head)
      element.scrollTop = from + height - element.clientHeight + head
  })

  // The rows follow each change of their servers and figures.
  changes.value
  sampled.value
  const ids = listed.value
  const first = Math.max(0, Math.floor(top / height) - BEYOND)
  const shown = ids.slice(first, Math.ceil((top + size) / height) + STEP + BEYOND)
  const visible = shown.join()
  const pool = Math.ceil(size / height) + 2 * BEYOND + STEP + 1
  useEffect(() => stream.current?.want(shown), [visible])
  const now = Date.now()
  const at = active.value
  const activeId = ids[at]
  return (
    <div
      class="table"
      id="servers"
      ref={scroller}
      role="grid"
      aria-label="Servers"
      aria-rowcount={ids.length + 1}
      aria-multiselectable="true"
      aria-activedescendant={
        activeId !== undefined && shown.includes(activeId) ? `row-${activeId}` : undefined
      }
      tabIndex={0}
      onFocus={({ target, currentTarget }: FocusEvent) => {
        if (target === currentTarget && active.peek() < 0) active.value = 0
      }}
      onScroll={({ currentTarget }: { readonly currentTarget: HTMLDivElement }) =>
        setTop(Math.floor(currentTarget.scrollTop / (STEP * height)) * STEP * height)
      }
      onKeyDown={(event: KeyboardEvent) => onKeyDown(event, Math.floor(size / height) - 2)}
    >
      <Header />
      <div class="rows" role="rowgroup" style={{ height: `${ids.length * height}px` }}>
        {shown.map((id, index) => {
          const row = rows.get(id)
          if (row === undefined) return null
          const sample = samples.get(id)
          return (
            <ServerRow
              // The element of a row that leaves the window is reused for a row that enters it.
              key={(first + index) % pool}
              row={row}
              sample={sample}
              // A clock that only servers with a figure need, to ten seconds.
              tick={sample === undefined ? 0 : Math.floor(now / 10_000)}
              top={(first + index) * height}
              index={first + index}
              isActive={first + index === at}
              isSelected={selection.value.has(id)}
            />
          )
        })}
      </div>
    </div>
  )
}
