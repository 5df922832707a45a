/** The files of one server's console, and how large they get. */
import { appendFileSync } from "node:fs"
import { join } from "node:path"
import { Effect } from "effect"
import { ioSync, orMissing, readText, removeTree, writeAtomic } from "../disk/fsio.ts"

/** Bytes of `console.log` past which this service cuts it. */
export const CONSOLE_MOST = 8 * 1024 * 1024

/**
 * Bytes of `console.log` past which the relay of a plain process begins a new one: nobody cuts it then. With what the
 * relay writes between two looks, neither file gets larger than {@link CONSOLE_BOUND}.
 */
export const RELAY_MOST = 12 * 1024 * 1024

/** Bytes that `console.log`, and `console.log.1` beside it, have at most, whether or not this service runs. */
export const CONSOLE_BOUND = 16 * 1024 * 1024

export const consoleFiles = (folder: string) => ({
  current: join(folder, "console.log"),
  /** What came before. */
  older: join(folder, "console.log.1"),
  /** What has been cut: written by the relay with each new file that it begins, and by this service; {@link RelayCut}. */
  cut: join(folder, "console.cut")
})

/** What is missing of a console, whoever has cut it. */
export interface RelayCut {
  /**
   * Where in the older file the output of the present run begins; `gone`: before it, what the run began with is not
   * there any more; `earlier`: the older file is all of earlier runs, or this service has cut it.
   */
  readonly begins: number | "gone" | "earlier"
  /** Bytes before the older file that have gone. */
  readonly left_out: number
}

const recordPattern = /^(\d{1,15}|gone|earlier) (\d{1,15})\n$/

/** Undefined where nothing has been cut. */
export const readRelayCut = (folder: string) =>
  readText(consoleFiles(folder).cut).pipe(
    Effect.map((text): RelayCut | undefined => {
      const [, begins, left_out] = recordPattern.exec(text) ?? []
      if (begins === undefined) return undefined
      return {
        begins: begins === "gone" || begins === "earlier" ? begins : Number(begins),
        left_out: Number(left_out)
      }
    }),
    orMissing(undefined)
  )

/** The record of a cut after which `console.log` is read from its beginning. */
export const cutOf = (left_out: number): string => `earlier ${left_out}\n`

/** For a run that is about to begin: what has been cut is not its own. */
export const endRelayCut = Effect.fnUntraced(function* (folder: string) {
  const { cut } = consoleFiles(folder)
  const known = yield* readRelayCut(folder)
  if (known === undefined || known.left_out === 0) return yield* removeTree(cut)
  yield* writeAtomic(cut, cutOf(known.left_out))
})

/** Puts a line of this service's own into a console. */
export const sayInConsole = (folder: string, text: string) =>
  ioSync("write console.log", () =>
    appendFileSync(consoleFiles(folder).current, `[${text}]\n`, { mode: 0o600 })
  )

/** The line that stands where output is missing. */
export const leftOut = (bytes: number): string => `[${bytes} bytes of output were left out here]`
