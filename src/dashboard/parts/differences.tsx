import type { DefinitionChange } from "../api/types.ts"
import type { View } from "../dom/el.ts"

export interface Difference {
  readonly path: string
  readonly from: unknown
  readonly to: unknown
  readonly note?: string
}

const textOf = (value: unknown): string =>
  value === undefined || value === null ? "—" : typeof value === "string" ? value : JSON.stringify(value)

export const differences = (all: ReadonlyArray<Difference>): View => (
  <div class="scroll" tabIndex={0} role="region" aria-label="Differences">
    <table class="differences">
      <thead>
        <tr>
          <th scope="col">Field</th>
          <th scope="col">Now</th>
          <th scope="col">Then</th>
          {all.some(({ note }) => note !== undefined) && <th scope="col">Takes effect</th>}
        </tr>
      </thead>
      <tbody>
        {all.map(({ from, note, path, to }) => (
          <tr key={path}>
            <th scope="row">
              <code>{path}</code>
            </th>
            <td>
              <del>{textOf(from)}</del>
            </td>
            <td>
              <ins>{textOf(to)}</ins>
            </td>
            {note !== undefined && <td>{note}</td>}
          </tr>
        ))}
      </tbody>
    </table>
  </div>
)

const needs = {
  nothing: "at once",
  restart: "at the next start",
  installation: "after an installation"
} as const

/** The changes of a definition, each with the time at which it takes effect. */
export const definitionChanges = (all: ReadonlyArray<DefinitionChange>): View =>
  differences(all.map(({ from, needs: after, path, to }) => ({ path, from, to, note: needs[after] })))
