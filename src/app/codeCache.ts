/**
 * Loads the parts of the bundle as scripts, with the code that V8 compiled in an earlier process. Node's own compile cache
 * has none of the functions that are compiled at their first call, which are nearly all that a start calls.
 */
import {
  closeSync,
  constants,
  fstatSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  type Stats,
  statSync,
  writeFileSync
} from "node:fs"
import { createRequire } from "node:module"
import { basename, dirname, join, resolve } from "node:path"
import { cachedDataVersionTag } from "node:v8"
// Without names: an older Node.js has to link this module.
import vm from "node:vm"
import zlib from "node:zlib"

export interface CodeCache {
  /** Returns the exports of a part of the bundle, and runs it if it has not run. */
  readonly load: (file: string) => unknown
  /**
   * Writes the code of the parts that had none in the cache, as far as it is compiled. Returns the folder if another user
   * can write to it: its code is neither read nor written.
   */
  readonly store: () => string | undefined
}

interface Compiled {
  readonly source: string
  readonly script: vm.Script
  readonly sourceSum: number
  readonly sourceOwner: number
}

/** Checksums of the source and of the code: V8 compares the lengths of sources, and runs damaged code. */
const HEADER_BYTES = 8

const wrapper = ["(function (exports, require, module, __filename, __dirname) {", "\n})"] as const

/** Symbolic links are refused, and a pipe in the place of a file does not make the start wait. */
const OPEN_FLAGS = constants.O_RDONLY | (constants.O_NOFOLLOW ?? 0) | (constants.O_NONBLOCK ?? 0)

const WRITABLE_BY_OTHERS = 0o022

/**
 * Whether only root, the user of this process or the owner of the source can have written here. V8 runs stored code
 * unseen, and the checksums are no secret. Windows has no such owners.
 */
const isTrusted = (stat: Stats, sourceOwner: number): boolean =>
  process.geteuid === undefined ||
  ([0, process.geteuid(), sourceOwner].includes(stat.uid) && (stat.mode & WRITABLE_BY_OTHERS) === 0)

const isTrustedFolder = (folder: string, sourceOwner: number): boolean => {
  const stat = lstatSync(folder)
  return stat.isDirectory() && isTrusted(stat, sourceOwner)
}

/** Reads a file of a trusted user; undefined if the file is not of such a user. */
const readTrusted = (file: string, sourceOwner: number): Buffer | undefined => {
  const fd = openSync(file, OPEN_FLAGS)
  try {
    const stat = fstatSync(fd)
    return stat.isFile() && isTrusted(stat, sourceOwner) ? readFileSync(fd) : undefined
  } finally {
    closeSync(fd)
  }
}

/** Returns the code for a source; undefined if it is missing, damaged, or of another source or user. */
const readCode = (file: string, sourceSum: number, sourceOwner: number): Buffer | undefined => {
  try {
    if (!isTrustedFolder(dirname(file), sourceOwner)) return undefined
    const bytes = readTrusted(file, sourceOwner)
    const code = bytes?.subarray(HEADER_BYTES)
    const isWhole =
      code !== undefined && bytes?.readUInt32LE(0) === sourceSum && bytes.readUInt32LE(4) === zlib.crc32(code)
    return isWhole ? code : undefined
  } catch {
    return undefined
  }
}

const writeCode = (file: string, { script, sourceSum }: Compiled): void => {
  const code = script.createCachedData()
  const header = Buffer.alloc(HEADER_BYTES)
  header.writeUInt32LE(sourceSum, 0)
  header.writeUInt32LE(zlib.crc32(code), 4)
  const draft = `${file}.${process.pid}`
  try {
    writeFileSync(draft, Buffer.concat([header, code]), { flag: "wx", mode: 0o644 })
    renameSync(draft, file)
  } catch {
    rmSync(draft, { force: true }) // the disk is full: the next process compiles again
  }
}

/** Removes the code of earlier bundles, and the drafts of processes that were killed. */
const prune = (place: string, bundle: string): void => {
  const parts = new Set(readdirSync(bundle))
  for (const name of readdirSync(place)) {
    if (/\.cjs(?:\.\d+)?$/.test(name) && !parts.has(name)) rmSync(join(place, name), { force: true })
  }
}

/**
 * Makes the loader of a process.
 *
 * @param folder of all processes; each version and set of flags of V8 has a folder in it. Undefined: there is no cache.
 */
export const codeCache = (folder: string | undefined): CodeCache => {
  const place = folder === undefined ? undefined : join(folder, cachedDataVersionTag().toString(16))
  const modules = new Map<string, { exports: unknown }>()
  const unsaved = new Map<string, Compiled>()

  const compile = (file: string): vm.Script => {
    const source = readFileSync(file)
    const sourceSum = zlib.crc32(source)
    const sourceOwner = statSync(file).uid
    const stored = place === undefined ? undefined : join(place, basename(file))
    const cachedData = stored === undefined ? undefined : readCode(stored, sourceSum, sourceOwner)
    // The bundle is in ASCII, and V8 keeps such a text in half the memory.
    const script = new vm.Script(wrapper.join(source.toString("latin1")), {
      filename: file,
      columnOffset: -wrapper[0].length,
      ...(cachedData === undefined ? {} : { cachedData })
    })
    if (stored !== undefined && script.cachedDataRejected !== false)
      unsaved.set(stored, { source: file, script, sourceSum, sourceOwner })
    return script
  }

  const load = (file: string): unknown => {
    const known = modules.get(file)
    if (known !== undefined) return known.exports
    const script = compile(file)
    const module = { exports: {} }
    modules.set(file, module)
    const folder = dirname(file)
    const require = (name: string) =>
      name.startsWith(".")
        ? load(resolve(folder, name))
        : (process.getBuiltinModule(name) ?? createRequire(file)(name))
    script.runInThisContext().call(module.exports, module.exports, require, module, file, folder)
    return module.exports
  }

  const store = () => {
    const [first] = unsaved.values()
    if (place === undefined || first === undefined) return undefined
    const compiled = [...unsaved]
    unsaved.clear()
    try {
      mkdirSync(place, { recursive: true, mode: 0o755 })
      if (!isTrustedFolder(place, first.sourceOwner)) return place
      prune(place, dirname(first.source))
      for (const [file, one] of compiled) writeCode(file, one)
    } catch {
      // the folder is read-only: each process compiles for itself
    }
    return undefined
  }

  return { load, store }
}
