import { Component } from "preact"
import { classes, type View } from "../../dom/el.ts"
import { bytes, dateTime, duration, mebibytes } from "../../dom/format.ts"
import { notSaved } from "../../parts/endings.tsx"
import { copyable, status } from "../../parts/parts.tsx"
import { addressOf, follow, go } from "../../state/router.ts"
import { labelText, type Row, titleOf } from "../../state/rows.ts"
import { active, extendTo, toggle } from "../../state/selection.ts"
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
  const limit = row.memoryLimit * 1024 * 1024
  if (used === undefined || used === null)
    return <span title={`The limit is ${mebibytes(row.memoryLimit)}`}>{""}</span>
  const share = limit === 0 ? 0 : Math.min(1, used / limit)
  return (
    <span class="memory" title={`${bytes(used)} of ${mebibytes(row.memoryLimit)}`}>
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
const trouble = ({ crashedAt, failure, phase, problem, restartAt, status }: Row): string | undefined => {
  if (phase === "failed") return `Installation failed: ${failure}`
  if (problem !== "" && status === "offline") return `It ${problem}`
  if (restartAt !== "") return "Crashed; starts again soon"
  return crashedAt !== "" && status === "offline" ? `Last crash ${dateTime(crashedAt)}` : undefined
}

/** One server. Drawn again only when something of it has changed. */
export class ServerRow extends Component<Props> {
  override shouldComponentUpdate(next: Props): boolean {
    const { isActive, isSelected, row, sample, tick, top } = this.props
    return (
      row !== next.row ||
      sample !== next.sample ||
      top !== next.top ||
      tick !== next.tick ||
      isActive !== next.isActive ||
      isSelected !== next.isSelected
    )
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
    const uptime = uptimeOf(row, sample)
    const problem = trouble(row)
    const title = titleOf(row)
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
            aria-label={`Select ${title}`}
            onClick={this.onCheck}
          />
        </div>
        <div class="across cell cell-name" role="gridcell">
          <a href={addressOf.server(row.id)} class="server-link" tabIndex={-1} onClick={follow}>
            {title}
          </a>
          {row.name !== "" && <span class="server-id">{row.id}</span>}
          <div class="row-labels">
            {Object.entries(row.labels)
              .slice(0, LABELS)
              .map(([name, value]) => (
                <span key={name} class="label">
                  {labelText(name, value)}
                </span>
              ))}
          </div>
        </div>
        <div class="across cell cell-status" role="gridcell">
          {status(row.status)}
          {!row.isSaved && notSaved()}
          {problem !== undefined && (
            <span class="trouble" title={problem} role="img" aria-label={problem}>
              !
            </span>
          )}
        </div>
        <div class="cell cell-blueprint" role="gridcell">
          {row.blueprint}
        </div>
        <div class="cell cell-node" role="gridcell">
          {row.nodeName}
        </div>
        <div class="cell cell-address" role="gridcell">
          {copyable(row.address, -1)}
        </div>
        <div class="cell cell-memory" role="gridcell">
          {memory(row, sample)}
        </div>
        <div class="cell cell-cpu" role="gridcell">
          {cpu(row, sample)}
        </div>
        <div class="cell cell-uptime" role="gridcell">
          {uptime === undefined ? "" : duration(uptime)}
        </div>
      </div>
    )
  }
}
