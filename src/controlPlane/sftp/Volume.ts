/** The files that one connection reaches: of one server, or of each server that the key may browse (spec 10.6). */
import { Effect } from "effect"
import type { Unavailable } from "../../contract/domain/errors.ts"
import { childPath, isWithin, nameBytes } from "../../contract/domain/Files.ts"
import { ServerId } from "../../contract/domain/Id.ts"
import { admits } from "../../contract/domain/Key.ts"
import { type DaemonError, DaemonRefused } from "../../contract/nodeApi/Daemon.ts"
import {
  type FileError,
  FileRefused,
  type NodeFiles,
  type OpenFile
} from "../../contract/nodeApi/NodeFiles.ts"
import type { EntryChange, ListedEntry, OpenFlags, Space } from "../../contract/nodeApi/sessionFrames.ts"
import { requirePath, requireRight, ServerAccess } from "../http/Principal.ts"
import { DaemonClient } from "../nodes/DaemonClient.ts"
import { ServerIndex } from "../servers/list/ServerIndex.ts"
import { actionOf, type Client, makeAuditing } from "./auditing.ts"
import { type Attributes, attributesOf, type Named } from "./packets.ts"
import { makeSessions } from "./serverSessions.ts"

/** The user name that shows each server as a folder. */
export const ALL = "all"

const PAGE = 1000

/** A folder that a client has opened. */
export interface VolumeFolder {
  /** Returns some entries that were not read yet; none: the end. */
  readonly read: Effect.Effect<ReadonlyArray<Named>, FileError>
  readonly close: Effect.Effect<void>
}

export interface Volume {
  openFolder(path: string): Effect.Effect<VolumeFolder, FileError>
  stat(path: string): Effect.Effect<Attributes, FileError>
  open(path: string, flags: OpenFlags, mode?: number): Effect.Effect<OpenFile, FileError>
  change(change: EntryChange): Effect.Effect<void, FileError>
  space(path: string): Effect.Effect<Space, FileError>
  /** Returns once the server of the volume is gone, migrates, or is closed to the key. Forever for all servers. */
  readonly ended: Effect.Effect<void>
}

const folder: Attributes = { type: "folder", mode: 0o755, modified: 0, size: 0 }

const noSuchPath = (path: string) =>
  new FileRefused({ status: 404, detail: `no such path: ${path}`, hint: "List its folder." })

const onlyServers = new FileRefused({
  status: 403,
  detail: "here are only servers",
  hint: "Change into the folder of a server first."
})

const unavailable = ({ detail, hint }: Unavailable) => new DaemonRefused({ status: 500, detail, hint })

/** Makes the volume of one server. Its paths are those of the instance. */
const makeServerVolume = Effect.fnUntraced(function* (client: Client) {
  const daemons = yield* DaemonClient
  const index = yield* ServerIndex
  const access = yield* ServerAccess
  const { changing, reading } = yield* makeAuditing(client)
  const { paths } = client.principal

  const accessOf = Effect.fnUntraced(function* (
    id: ServerId
  ): Effect.fn.Return<NodeFiles, DaemonError | FileRefused> {
    const readable = yield* Effect.mapError(access.mayRead(id), unavailable)
    const record = readable ? yield* Effect.mapError(index.lookUp(id), unavailable) : undefined
    if (record === undefined) return yield* noSuchPath(`/${id}`)
    return (yield* daemons.of(record.node_id)).files
  })
  const sessions = yield* makeSessions(accessOf)

  const allowed = (right: "browse" | "files", ...of: ReadonlyArray<string>) =>
    Effect.mapError(
      Effect.andThen(requireRight(right), Effect.forEach(of, requirePath, { discard: true })),
      ({ detail, hint }): FileError => new FileRefused({ status: 403, detail, hint })
    )
  /** Whether a folder leads to a folder of the key. */
  const leads = (path: string) => paths?.some((inside) => isWithin(path, inside)) === true
  const visible = (path: string) => (leads(path) ? allowed("browse") : allowed("browse", path))
  const isShown = (path: string) =>
    paths === undefined || leads(path) || paths.some((inside) => isWithin(inside, path))

  /** Holds the session of a server until a file or folder is closed; returns how to close it. */
  const held = (session: { openFiles: number }, { close }: { readonly close: Effect.Effect<void> }) => {
    session.openFiles += 1
    return Effect.suspend(() => {
      session.openFiles -= 1
      return close
    })
  }

  return {
    over: sessions.over,
    ended: sessions.ended,
    openFolder: Effect.fnUntraced(function* (id: ServerId, path: string) {
      yield* visible(path)
      const opened = yield* sessions.opened(id)
      const folder = yield* opened.session.openFolder(path)
      const isListed = ({ name }: ListedEntry) => isShown(childPath(path, name))
      const named = ({ name, ...attributes }: ListedEntry): Named => ({
        name: nameBytes(name),
        shown: name,
        attributes
      })
      const read = Effect.gen(function* () {
        while (true) {
          const entries = yield* folder.read
          const names = entries.filter(isListed)
          if (entries.length === 0 || names.length > 0) return names.map(named)
        }
      })
      return { read, close: held(opened, folder) } satisfies VolumeFolder
    }),
    stat: Effect.fnUntraced(function* (id: ServerId, path: string) {
      yield* visible(path)
      const { entry } = yield* (yield* accessOf(id)).stat(id, path)
      return attributesOf(entry)
    }),
    open: Effect.fnUntraced(function* (id: ServerId, path: string, flags: OpenFlags, mode?: number) {
      const opening = Effect.gen(function* () {
        yield* allowed(flags.write ? "files" : "browse", path)
        const opened = yield* sessions.opened(id)
        const file = yield* opened.session.open(path, flags, mode)
        return { ...file, close: held(opened, file) } satisfies OpenFile
      })
      if (flags.write) return yield* changing(id, { action: "file.write", paths: [path] })(opening)
      return yield* Effect.tap(opening, () => reading(id, path))
    }),
    change: (id: ServerId, change: EntryChange) => {
      const action = actionOf(change)
      return changing(
        id,
        action
      )(
        Effect.gen(function* () {
          yield* allowed("files", ...action.paths)
          yield* (yield* sessions.opened(id)).session.change(change)
        })
      )
    },
    space: Effect.fnUntraced(function* (id: ServerId) {
      yield* allowed("browse")
      return yield* (yield* sessions.opened(id)).session.space
    })
  }
})

/** Makes the volume of a connection, until its scope ends. Requires that the caller is `CurrentPrincipal`. @param server of the user name; {@link ALL}: every server */
export const makeVolume = Effect.fnUntraced(function* (client: Client, server: ServerId | typeof ALL) {
  const volume = yield* makeServerVolume(client)
  if (server !== ALL) {
    return {
      openFolder: (path) => volume.openFolder(server, path),
      stat: (path) => volume.stat(server, path),
      open: (path, flags, mode) => volume.open(server, path, flags, mode),
      change: (change) => volume.change(server, change),
      space: () => volume.space(server),
      ended: Effect.raceFirst(volume.over(server), volume.ended)
    } satisfies Volume
  }
  const index = yield* ServerIndex
  const { restriction } = client.principal

  /** Splits a path into the server and the path in its instance; nothing for the top folder. */
  const split = (path: string) => {
    if (path === "/") return undefined
    const end = path.indexOf("/", 1)
    const id = ServerId.make(path.slice(1, end === -1 ? undefined : end))
    return { id, below: end === -1 ? "/" : path.slice(end) }
  }
  const within = <A>(path: string, use: (id: ServerId, below: string) => Effect.Effect<A, FileError>) =>
    Effect.suspend((): Effect.Effect<A, FileError> => {
      const at = split(path)
      return at === undefined ? Effect.fail(onlyServers) : use(at.id, at.below)
    })

  /** Opens the list of the servers that there are now, which is read in pages. */
  const openServers = (): VolumeFolder => {
    const readable = [...index.all()]
      .filter((record) => admits(restriction, record))
      .toSorted((one, other) => (one.id < other.id ? -1 : 1))
    const named = Map.groupBy(readable, ({ name }) => name)
    let next = 0
    const read = Effect.sync(() => {
      const page = readable.slice(next, next + PAGE)
      next += page.length
      return page.map(
        ({ id, name }): Named => ({
          name: Buffer.from(id),
          shown: name === undefined || named.get(name)?.length !== 1 ? id : `${id} (${name})`,
          attributes: folder
        })
      )
    })
    return { read, close: Effect.void }
  }

  const all: Volume = {
    openFolder: (path) =>
      path === "/" ? Effect.sync(openServers) : within(path, (id, below) => volume.openFolder(id, below)),
    stat: (path) =>
      path === "/" ? Effect.succeed(folder) : within(path, (id, below) => volume.stat(id, below)),
    open: (path, flags, mode) => within(path, (id, below) => volume.open(id, below, flags, mode)),
    change: (change) =>
      within(change.path, (id, below) => {
        if (change.kind !== "rename") return volume.change(id, { ...change, path: below })
        const from = split(change.from)
        return from?.id === id
          ? volume.change(id, { ...change, from: from.below, path: below })
          : Effect.fail(onlyServers)
      }),
    space: (path) => within(path, (id) => volume.space(id)),
    ended: Effect.never
  }
  return all
})
