/** Creation of an instance from a large and a small base folder: time and disk, by overlay and by plain copies. */

import { randomBytes } from "node:crypto"
import { mkdirSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { Context, Effect, Layer } from "effect"
import { NodeId } from "../../src/contract/domain/Id.ts"
import type { InstanceStorage } from "../../src/contract/domain/Node.ts"
import { removeTree } from "../../src/daemon/disk/fsio.ts"
import { treeSize } from "../../src/daemon/files/copyTree.ts"
import { InstanceFiles } from "../../src/daemon/files/InstanceFiles.ts"
import { generationsDir } from "../../src/daemon/files/treeRecord.ts"
import { newId, specOf } from "../daemon/support.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"
import { BenchFailed, interleaved, median, print } from "./harness.ts"

const MB = 1024 * 1024
const FOLDERS = 20
/** Copies of the large base per run: each takes seconds, and the median of three is precise enough. */
const ROUNDS = 3
/** Instances per round by overlay, which is cheap. */
const MANY = 5

const bases = { small: 2, large: 2048 } as const

/** Makes a base folder of files of 1 MiB whose contents do not compress. */
const makeBase = (folder: string, mib: number) => {
  for (let index = 0; index < mib; index++) {
    const inside = join(folder, `d${index % FOLDERS}`)
    mkdirSync(inside, { recursive: true })
    writeFileSync(join(inside, `f${index}`), randomBytes(MB))
  }
}

interface Made {
  readonly millis: number
  readonly bytes: number
}

export const overlay = Effect.gen(function* () {
  const dataDir = yield* temporaryFolder
  const [baseDir, serversDir] = [join(dataDir, "base"), join(dataDir, "servers")]
  yield* Effect.sync(() => {
    for (const [name, mib] of Object.entries(bases)) makeBase(join(generationsDir(baseDir), name), mib)
  })
  const sources = {
    node_id: NodeId.make("bench"),
    dataDir,
    volumesDir: join(dataDir, "volumes"),
    allowedMounts: []
  }
  const open = Effect.fnUntraced(function* (storage: InstanceStorage) {
    const layer = InstanceFiles.layer({ baseDir, serversDir, sources, storage })
    const files = Context.get(yield* Layer.build(Layer.fresh(layer)), InstanceFiles)
    const strategy = yield* files.strategy
    if (strategy === storage) return files
    return yield* new BenchFailed({
      message: `this machine cannot do ${storage}; it would be ${strategy}`
    })
  })
  const [mounted, copied] = [yield* open("overlay"), yield* open("copy")]

  /** Makes an instance and removes it. */
  const make = Effect.fnUntraced(function* (
    files: InstanceFiles["Service"],
    generation: keyof typeof bases
  ): Effect.fn.Return<Made, { readonly message: string }> {
    const folder = join(serversDir, newId())
    const base = { folder: join(generationsDir(baseDir), generation), generation }
    const began = performance.now()
    yield* files.make(folder, base, specOf())
    const millis = performance.now() - began
    yield* files.close(folder)
    const { bytes } = yield* treeSize(folder)
    yield* removeTree(folder)
    return { millis, bytes }
  })

  const middle = (made: ReadonlyArray<Made>): Made => ({
    millis: median(made.map(({ millis }) => millis)),
    bytes: median(made.map(({ bytes }) => bytes))
  })
  const several = (generation: keyof typeof bases) =>
    Effect.map(
      Effect.forEach(Array.from({ length: MANY }), () => make(mounted, generation)),
      middle
    )
  yield* make(mounted, "small")
  const small = yield* interleaved(ROUNDS, several("small"), make(copied, "small"))
  const large = yield* interleaved(ROUNDS, several("large"), make(copied, "large"))
  const [few, much] = [middle(small.subjects), middle(large.subjects)]
  const [fewCopied, muchCopied] = [middle(small.baselines), middle(large.baselines)]

  const figure = (name: string, unit: string, value: number, baseline_value: number) =>
    print({
      bench: "overlay",
      figure: name,
      value,
      unit,
      baseline: "the same by plain copies",
      baseline_value
    })
  yield* figure("instance of a 2 MiB base", "ms", few.millis, fewCopied.millis)
  yield* figure("instance of a 2 GiB base", "ms", much.millis, muchCopied.millis)
  yield* figure(
    "2 GiB base more than 2 MiB base",
    "ms",
    much.millis - few.millis,
    muchCopied.millis - fewCopied.millis
  )
  yield* figure("disk of an instance of a 2 MiB base", "bytes", few.bytes, fewCopied.bytes)
  yield* figure("disk of an instance of a 2 GiB base", "bytes", much.bytes, muchCopied.bytes)
}).pipe(Effect.scoped)
