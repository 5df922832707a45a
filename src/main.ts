#!/usr/bin/env node
/** The entry point. The compile cache beside the packages halves the start of a command. */
import { closeSync, readdirSync, readFileSync } from "node:fs"
import { enableCompileCache } from "node:module"
import { join } from "node:path"

enableCompileCache(join(import.meta.dirname, "../node_modules/.cache/muster"))
const CLOSE_ON_EXEC = 0o2000000

const isInheritable = (fd: number): boolean => {
  try {
    const flags = /^flags:\s*(\d+)$/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, "latin1"))?.[1]
    return flags !== undefined && (Number.parseInt(flags, 8) & CLOSE_ON_EXEC) === 0
  } catch {
    return false // open for the list only
  }
}

// The parent may have left files open, and servers must not inherit them. Node marks its own files.
if (process.platform === "linux") {
  for (const fd of readdirSync("/proc/self/fd").map(Number)) if (fd > 2 && isInheritable(fd)) closeSync(fd)
}

void import("./cli/run.ts")
