import type { GitAddress } from "./address.ts"

/** The folder for the files of a source. */
export type SourceKind = "blueprints" | "software"

/** The place of a source's token. Each sync reads it; no token is stored. */
export type TokenPlace = { readonly env: string } | { readonly file: string }

/** One git repository whose definitions are synced into a folder below the blueprints or the software folder. */
export interface Source {
  readonly id: string
  readonly kind: SourceKind
  readonly address: GitAddress
  /** Branch, tag or full commit id; undefined: the remote's HEAD. */
  readonly ref: string | undefined
  /** Folder inside the repository; empty: its root. */
  readonly path: string
  /** Folder below the definitions folder. */
  readonly destination: string
  readonly token: TokenPlace | undefined
  /** Certificates (PEM) for the check of the server's, instead of the system's. */
  readonly ca_file: string | undefined
  /** Seconds that one sync may take. */
  readonly timeout: number
}
