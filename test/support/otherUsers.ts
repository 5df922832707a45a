/** Whether other users can read this clone, for tests that start its programs as another user. */
import { statSync } from "node:fs"
import { dirname, resolve } from "node:path"

const isOpen = (folder: string): boolean =>
  (statSync(folder).mode & 0o001) !== 0 && (folder === "/" || isOpen(dirname(folder)))

const run = isOpen(resolve(import.meta.dirname))

export const otherUsers = {
  run,
  /** Appended to the titles of tests that need it. */
  note: run ? "" : " (skipped: needs a clone that other users can read)"
} as const
