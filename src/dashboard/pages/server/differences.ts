import { code, del, div, ins, table, tbody, td, th, thead, tr, type View } from "../../dom/el.ts"

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
