/**
 * Loads the parts of the bundle as scripts, with the code that V8 compiled in an earlier process. Node's own compile cache
 * has none of the functions that are compiled at their first call, which are nearly all that a start calls.
 */
import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs"
import { createRequire } from "node:module"
import { basename, dirname, join, resolve } from "node:path"
import { cachedDataVersionTag } from "node:v8"
// Without names: an older Node.js has to link this module.
import vm from "node:vm"
import zlib from "node:zlib"

export interface CodeCache {
  /** Returns the exports of a part of the bundle, and runs it if it has not run. */
  readonly load: (file: string) => unknown
  /** Writes the code of the parts that had none in the cache, as far as it is compiled. */
  readonly store: () => void
}

interface Compiled {
  readonly script: vm.Script
  readonly sourceSum: number
}

/** Checksums of the source and of the code: V8 compares the lengths of sources, and runs damaged code. */
const HEADER_BYTES = 8

const wrapper = ["(function (exports, require, module, __filename, __dirname) {", "\n})"] as const

/** Returns the code for a source; undefined if it is missing, damaged, or of another source. */
const readCode = (file: string, sourceSum: number): Buffer | undefined => {
  try {
    const bytes = readFileSync(file)
    const code = bytes.subarray(HEADER_BYTES)
    const isWhole = bytes.readUInt32LE(0) === sourceSum && bytes.readUInt32LE(4) === zlib.crc32(code)
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
    writeFileSync(draft, Buffer.concat([header, code]))
    renameSync(draft, file)
  } catch {
    rmSync(draft, { force: true }) // the disk is full: the next process compiles again
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
    const stored = place === undefined ? undefined : join(place, basename(file))
    const cachedData = stored === undefined ? undefined : readCode(stored, sourceSum)
    // The bundle is in ASCII, and V8 keeps such a text in half the memory.
    const script = new vm.Script(wrapper.join(source.toString("latin1")), {
      filename: file,
      columnOffset: -wrapper[0].length,
      ...(cachedData === undefined ? {} : { cachedData })
    })
    if (stored !== undefined && script.cachedDataRejected !== false)
      unsaved.set(stored, { script, sourceSum })
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
    if (place === undefined || unsaved.size === 0) return
    try {
      mkdirSync(place, { recursive: true })
      for (const [file, compiled] of unsaved) writeCode(file, compiled)
    } catch {
      // the folder is read-only: each process compiles for itself
    }
    unsaved.clear()
  }

  return { load, store }
}
