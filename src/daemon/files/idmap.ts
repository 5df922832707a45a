/**
 * Mounts that show the files of one owner as those of another (idmapped mounts, mount_setattr(2)). They need Linux 5.12
 * for files and folders, 5.19 for layers of an overlay, and support by the file system. The helper makes them
 * (helper.pl): `mount` of util-linux supports them since 2.39 only.
 */
import type { RunUser } from "../runtime/Runtime.ts"

/** The owner of files, and the user that a mount shows as their owner. */
export interface Shown {
  readonly owner: RunUser
  readonly as: RunUser
}

/** Undefined if the files have the owner already. */
export const shownAs = (owner: RunUser, as: RunUser): Shown | undefined =>
  owner.uid === as.uid && owner.gid === as.gid ? undefined : { owner, as }

/** Attributes of a mount (mount_setattr(2)). */
export const READ_ONLY = 1
export const NOSUID_NODEV = 2 + 4

/** Root is mapped to itself, so that the daemon can make files there and change their owner. */
const mapOf = (from: number, to: number): string =>
  from === 0 || to === 0 ? `${from} ${to} 1` : `${from} ${to} 1\n0 0 1`

const mapsOf = (shown: Shown | undefined): ReadonlyArray<string> =>
  shown === undefined
    ? ["", ""]
    : [mapOf(shown.owner.uid, shown.as.uid), mapOf(shown.owner.gid, shown.as.gid)]

/** A mount; open files are given by their number in this process. */
export interface MountRequest {
  readonly target: string
  /** {@link READ_ONLY}, {@link NOSUID_NODEV} */
  readonly attributes: number
  /** Undefined if the source itself is mounted. */
  readonly overlay?: { readonly name: string; readonly upper: number; readonly work: number }
  /** `shown` undefined: no map. */
  readonly sources: ReadonlyArray<{ readonly source: number; readonly shown: Shown | undefined }>
}

/** Returns the words of a mount for the helper (helper.pl). */
export const mountWords = ({ attributes, overlay, sources, target }: MountRequest): ReadonlyArray<string> =>
  [
    ...[attributes, target, overlay?.name ?? "", overlay?.upper ?? "", overlay?.work ?? ""],
    ...sources.flatMap(({ shown, source }) => [source, ...mapsOf(shown)])
  ].map(String)
