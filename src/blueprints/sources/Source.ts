import type { GitAddress } from "./address.ts"

/** The folder that a source's files go to. */
export type SourceKind = "blueprints" | "software"

/** Where the token of a source is found: read anew at each sync, never kept. */
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
  /** Certificates (PEM) that the server's is checked against, in place of the system's. */
  readonly ca_file: string | undefined
  /** Seconds that one sync may take. */
  readonly timeout: number
}
