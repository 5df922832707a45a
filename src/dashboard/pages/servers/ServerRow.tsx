import { Component, type ComponentChildren } from "preact"
import { classes, type View } from "../../dom/el.ts"
import { bytes, dateTime, duration, labelText, mebibytes } from "../../dom/format.ts"
import { copyable, notSaved, status } from "../../parts/parts.tsx"
import { active, extendTo, toggle } from "../../state/listed.ts"
import { addressOf, follow, go } from "../../state/router.ts"
import { addressText, failureText, problemText, type Row, recentCrash, titleOf } from "../../state/rows.ts"
import type { Sample } from "../../state/stats.ts"

interface Props {
  readonly row: Row
  readonly sample: Sample | undefined
  /** A clock: the row is drawn again when it changes. */
  readonly tick: number
  /** Pixels from the top of the list. */
  readonly top: number
  readonly index: number
  readonly isActive: boolean
  readonly isSelected: boolean
}

const isUp = ({ status }: Row): boolean =>
  status === "running" || status === "starting" || status === "stopping"

const LABELS = 4

/** Milliseconds since the process began, if known. */
const uptimeOf = (row: Row, sample: Sample | undefined): number | undefined =>
  !isUp(row) || sample === undefined || sample.stats.uptime === null
    ? undefined
    : sample.stats.uptime + (Date.now() - sample.at)

const memory = (row: Row, sample: Sample | undefined): View => {
  const used = isUp(row) ? sample?.stats.memory_bytes : undefined
  const limit = row.limits?.memory_limit ?? 0
  if (used === undefined || used === null) return <span title={`The limit is ${mebibytes(limit)}`}>{""}</span>
  const share = Math.min(1, used / (limit * 1024 * 1024))
  return (
    <span class="memory" title={`${bytes(used)} of ${mebibytes(limit)}`}>
      {limit > 0 && (
        <span class={classes("mini", share > 0.9 && "is-full")} aria-hidden="true">
          <span style={{ width: `${share * 100}%` }} />
        </span>
      )}
      {bytes(used)}
    </span>
  )
}

const cpu = (row: Row, sample: Sample | undefined): string => {
  const used = isUp(row) ? sample?.stats.cpu_absolute : undefined
  return used === undefined || used === null ? "" : `${used < 10 ? used.toFixed(1) : used.toFixed(0)}%`
}

/** Returns why the server needs a look, if so. */
const trouble = (row: Row): string | undefined => {
  if (row.install?.phase === "failed") return `Installation failed: ${failureText(row)}`
  if (row.problem && row.status === "offline") return `It ${problemText(row.problem)}`
  if (row.restart && "next_at" in row.restart) return "Crashed; starts again soon"
  const crashed = recentCrash(row)
  return crashed === undefined ? undefined : `Last crash ${dateTime(crashed)}`
}

const labelsOf = ({ labels }: Row): View => (
  <div class="row-labels">
    {Object.entries(labels)
      .slice(0, LABELS)
      .map(([name, value]) => (
        <span key={name} class="label">
          {labelText(name, value)}
        </span>
      ))}
  </div>
)

/** The cells of a row after the check box, with their classes. */
const cellsOf = (
  row: Row,
  sample: Sample | undefined
): ReadonlyArray<readonly [string, ComponentChildren]> => {
  const uptime = uptimeOf(row, sample)
  const problem = trouble(row)
  return [
    [
      "across cell-name",
      [
        <a href={addressOf.server(row.id)} class="server-link" tabIndex={-1} onClick={follow}>
          {titleOf(row)}
        </a>,
        titleOf(row) !== row.id && <span class="server-id">{row.id}</span>,
        labelsOf(row)
      ]
    ],
    [
      "across cell-status",
      [
        status(row.status),
        row.save === false && notSaved(),
        problem !== undefined && (
          <span class="trouble" title={problem} role="img" aria-label={problem}>
            !
          </span>
        )
      ]
    ],
    ["cell-blueprint", row.blueprint_id],
    ["cell-node", row.node_name],
    ["cell-address", copyable(addressText(row), -1)],
    ["cell-memory", memory(row, sample)],
    ["cell-cpu", cpu(row, sample)],
    ["cell-uptime", uptime === undefined ? "" : duration(uptime)]
  ]
}

/** One server. Drawn again only when something of it has changed. */
export class ServerRow extends Component<Props> {
  override shouldComponentUpdate(next: Props): boolean {
    return Object.entries(next).some(([name, value]) => Reflect.get(this.props, name) !== value)
  }

  readonly onClick = (event: MouseEvent): void => {
    const { index, row } = this.props
    if (event.target instanceof Element && event.target.closest("a, button") !== null) return
    active.value = index
    if (event.shiftKey) extendTo(row.id)
    else if (event.ctrlKey || event.metaKey) toggle(row.id)
    else go(addressOf.server(row.id))
  }

  readonly onCheck = (event: MouseEvent): void => {
    active.value = this.props.index
    event.shiftKey ? extendTo(this.props.row.id) : toggle(this.props.row.id)
  }

  override render({ index, isActive, isSelected, row, sample, top }: Props): View {
    return (
      <div
        id={`row-${row.id}`}
        class={classes(
          "row",
          isActive && "is-active",
          isSelected && "is-selected",
          index % 2 === 1 && "is-odd"
        )}
        role="row"
        aria-rowindex={index + 2}
        aria-selected={isSelected}
        style={{ transform: `translateY(${top}px)` }}
        onClick={this.onClick}
      >
        <div class="cell cell-check" role="gridcell">
          <button
            type="button"
            class={classes("check", isSelected && "is-checked")}
            role="checkbox"
            tabIndex={-1}
            aria-checked={isSelected}
            aria-label={`Select ${titleOf(row)}`}
            onClick={this.onCheck}
          />
        </div>
        {cellsOf(row, sample).map(([className, content]) => (
          <div key={className} class={`cell ${className}`} role="gridcell">
            {content}
          </div>
        ))}
      </div>
    )
  }
}
