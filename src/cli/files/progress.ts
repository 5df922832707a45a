/** The progress of transfers, in one line on standard error if that is a terminal. */
import { Console, Effect, Schedule } from "effect"
import { legible } from "../../contract/domain/fileTexts.ts"
import { elapsedMillis } from "../../shared/work/elapsed.ts"
import { sizeText } from "../shared/output.ts"
import { shortDuration } from "../shared/times.ts"

export interface Snapshot {
  /** The file whose transfer has run for the longest time. */
  readonly name: string
  /** Files so far, and all of them if they are counted. */
  readonly files: number
  readonly ofFiles?: number
  /** Bytes; `total` if it is known. */
  readonly done: number
  readonly total: number | undefined
  /** Bytes a second. */
  readonly rate: number
}

/** Returns the line of a progress, which fits `width` columns: a long name loses its beginning. */
export const progressText = (
  { done, files, name, ofFiles, rate, total }: Snapshot,
  width: number
): string => {
  const isPart = total !== undefined && total > 0
  const left = isPart && rate > 0 && done < total ? [`${shortDuration((total - done) / rate)} left`] : []
  const figures = [
    ...(ofFiles !== undefined && ofFiles > 1
      ? [`${Math.min(files, ofFiles)} of ${ofFiles} files`]
      : files > 1
        ? [`${files} files`]
        : []),
    isPart
      ? `${sizeText(done)} of ${sizeText(total)}  ${Math.floor((100 * Math.min(done, total)) / total)}%`
      : sizeText(done),
    `${sizeText(rate)}/s`,
    ...left
  ].join("  ")
  const room = width - figures.length - 2
  const characters = [...legible(name)]
  const shown = characters.length <= room ? characters : ["…", ...characters.slice(-Math.max(0, room - 1))]
  return room < 2 ? figures.slice(0, Math.max(0, width)) : `${shown.join("")}  ${figures}`
}

interface Sample {
  readonly at: number
  readonly done: number
}

const WINDOW_MILLIS = 5000

/** Adds a sample and drops those that are too old to count; the first and the last one give the rate. */
export const sampled = (samples: ReadonlyArray<Sample>, next: Sample): ReadonlyArray<Sample> => [
  ...samples.filter(({ at }) => next.at - at <= WINDOW_MILLIS),
  next
]

export const rateOf = (samples: ReadonlyArray<Sample>): number => {
  const [first] = samples
  const last = samples.at(-1)
  if (first === undefined || last === undefined || last.at <= first.at) return 0
  return Math.max(0, (1000 * (last.done - first.done)) / (last.at - first.at))
}

/** The files and bytes of a whole transfer of folders. */
export interface Expected {
  readonly files: number
  readonly bytes: number
}

export const NOTHING: Expected = { files: 0, bytes: 0 }

export interface Progress {
  /** Whether the line is shown; if not, totals are of no use. */
  readonly isShown: boolean
  /** Adds to the totals of a transfer of folders, once they are counted. */
  readonly expect: (all: Expected) => void
  /** A file of such a transfer is there already. */
  readonly there: (bytes: number) => void
  /** Says that a folder is read, until the first file begins. */
  readonly reading: (folder: string) => void
  /** A file begins. @param total bytes of all that is transferred, if this file is all and they are known */
  readonly begin: (name: string, total?: number) => void
  /** A file has ended: the line names another one. */
  readonly ended: (name: string) => void
  /** Bytes that an earlier command has transferred: they count as done, but not for the rate. */
  readonly had: (bytes: number) => void
  /** Bytes were transferred; a negative number if a file begins again. */
  readonly moved: (bytes: number) => void
  /** Prints a note above the line. */
  readonly say: (text: string) => Effect.Effect<void>
}

const CLEAR = "\r\u001b[K"

const WIDTH = 80

/** Runs transfers and shows their progress. If standard error is no terminal, only notes are printed. */
export const withProgress = <A, E, R>(use: (progress: Progress) => Effect.Effect<A, E, R>) =>
  Effect.gen(function* () {
    const { stderr } = process
    const isShown = stderr.isTTY === true
    let now: Omit<Snapshot, "name" | "rate"> = { files: 0, done: 0, total: undefined }
    let earlier = 0
    const running = new Set<string>()
    let last = ""
    let samples: ReadonlyArray<Sample> = []
    const clear = Effect.sync(() => {
      if (isShown) stderr.write(CLEAR)
    })
    const draw = Effect.map(elapsedMillis, (at) => {
      if (now.files === 0) return
      samples = sampled(samples, { at, done: now.done - earlier })
      const [name = last] = running
      // Some terminals say that they have no columns.
      const width = (stderr.columns || WIDTH) - 1
      stderr.write(`${CLEAR}${progressText({ ...now, name, rate: rateOf(samples) }, width)}`)
    })
    if (isShown) {
      yield* Effect.addFinalizer(() => clear)
      yield* Effect.forkScoped(Effect.repeat(draw, Schedule.spaced("200 millis")))
    }
    return yield* use({
      isShown,
      expect: ({ bytes, files }) => {
        now = { ...now, total: bytes, ofFiles: files }
      },
      there: (bytes) => {
        earlier += bytes
        now = { ...now, files: now.files + 1, done: now.done + bytes }
      },
      reading: (folder) => {
        if (isShown) stderr.write(`${CLEAR}${`Reading ${legible(folder)}`.slice(0, WIDTH - 4)}...`)
      },
      begin: (name, total) => {
        running.add(name)
        last = name
        now = { ...now, total: total ?? now.total, files: now.files + 1 }
      },
      ended: (name) => {
        running.delete(name)
      },
      had: (bytes) => {
        earlier += bytes
        now = { ...now, done: now.done + bytes }
      },
      moved: (bytes) => {
        now = { ...now, done: now.done + bytes }
      },
      say: (text) => Effect.andThen(clear, Console.error(text))
    })
  }).pipe(Effect.scoped)
