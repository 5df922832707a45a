import type { DefinitionChange } from "../api/types.ts"
import { code, del, div, ins, table, tbody, td, th, thead, tr, type View } from "../dom/el.ts"

/** A changed value; undefined or null: it is absent. */
export interface Difference {
  readonly path: string
  readonly from: unknown
  readonly to: unknown
  /** When it takes effect; absent: not shown. */
  readonly note?: string
}

const textOf = (value: unknown): string =>
  value === undefined || value === null ? "—" : typeof value === "string" ? value : JSON.stringify(value)

/** Old and new values side by side. */
export const differences = (all: ReadonlyArray<Difference>): View =>
  div(
    { class: "scroll", tabIndex: 0, role: "region", "aria-label": "Differences" },
    table(
      { class: "differences" },
      thead(
        {},
        tr(
          {},
          th({ scope: "col" }, "Field"),
          th({ scope: "col" }, "Now"),
          th({ scope: "col" }, "Then"),
          all.some(({ note }) => note !== undefined) && th({ scope: "col" }, "Takes effect")
        )
      ),
      tbody(
        {},
        all.map(({ from, note, path, to }) =>
          tr(
            { key: path },
            th({ scope: "row" }, code({}, path)),
            td({}, del({}, textOf(from))),
            td({}, ins({}, textOf(to))),
            note !== undefined && td({}, note)
          )
        )
      )
    )
  )

const needs = {
  nothing: "at once",
  restart: "at the next start",
  installation: "after an installation"
} as const

/** The changes of a definition, each with the time at which it takes effect. */
export const definitionChanges = (all: ReadonlyArray<DefinitionChange>): View =>
  differences(all.map(({ from, needs: after, path, to }) => ({ path, from, to, note: needs[after] })))
