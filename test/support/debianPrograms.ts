/** Programs of Debian's packages that some tests start. */
import { existsSync } from "node:fs"
import { delimiter, join } from "node:path"

export interface DebianProgram {
  /** Its path; its name if it is missing. */
  readonly path: string
  /** Whether tests that need it run; in CI it is required. */
  readonly run: boolean
  /** Appended to the titles of tests that need it. */
  readonly note: string
}

/** Looks for a program, also in the folders of root. */
export const debianProgram = (name: string, debianPackage: string): DebianProgram => {
  const path = [...(process.env.PATH ?? "").split(delimiter), "/usr/sbin", "/sbin"]
    .map((folder) => join(folder, name))
    .find((candidate) => existsSync(candidate))
  return {
    path: path ?? name,
    run: path !== undefined || process.env.CI !== undefined,
    note: path === undefined ? ` (needs ${name}: apt-get install ${debianPackage})` : ""
  }
}
