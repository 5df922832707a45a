/** A value that may be replaced while the process runs. */
export interface Reloadable<A> {
  readonly current: () => A
  /** Calls `apply` with each later value. */
  readonly onChange: (apply: (value: A) => void) => void
}
