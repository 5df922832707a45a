#!/usr/bin/env node
/**
 * The entry point, of the sources and of their bundle. An older Node.js has to link this module: it imports nothing that
 * Node.js 18 lacks.
 */
import { closeSync, readdirSync, readFileSync, readlinkSync } from "node:fs"
import module from "node:module"
import { basename } from "node:path"
import { isatty } from "node:tty"
import { fileURLToPath } from "node:url"
import { setFlagsFromString } from "node:v8"
import { isStale } from "./app/bundle.ts"

/** The oldest Node.js that runs Muster: major and minor version, as `engines` of package.json has them. */
const OLDEST = [22, 19] as const
const CLOSE_ON_EXEC = 0o2000000

const isSupported = (): boolean => {
  const [major = 0, minor = 0] = process.versions.node.split(".").map(Number)
  return major > OLDEST[0] || (major === OLDEST[0] && minor >= OLDEST[1])
}

/** The files to which V8 writes profiles, such as `perf-<pid>.map` of `--perf-basic-prof`. */
const V8_PROFILE = new RegExp(
  `^(?:(?:perf|jit)-${process.pid}\\.(?:map|dump)|isolate-\\w+-${process.pid}-.*)$`
)
const LOG_FLAG = "--logfile="

/** Whether V8 has opened a file: `--logfile` names its log, after a prefix or, with `--no-logfile-per-isolate`, without. */
const isOfV8 = (name: string): boolean => {
  const flag = process.execArgv.findLast((given) => given.startsWith(LOG_FLAG))
  const log = flag === undefined ? "v8.log" : basename(flag.slice(LOG_FLAG.length))
  return V8_PROFILE.test(name) || name === log || name === `${log}.ll`
}

/** Whether a file is open that a parent can have left. */
const isInherited = (fd: number): boolean => {
  try {
    if (isOfV8(basename(readlinkSync(`/proc/self/fd/${fd}`)))) return false
    const flags = /^flags:\s*(\d+)$/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, "utf8"))?.[1]
    return flags !== undefined && (Number.parseInt(flags, 8) & CLOSE_ON_EXEC) === 0
  } catch {
    return false // open for the list only
  }
}

if (isSupported()) {
  const isService = ["serve", "node"].includes(process.argv[2] ?? "")
  // The parent may have left files open, and servers must not inherit them. Node marks its own files.
  if (process.platform === "linux") {
    for (const fd of readdirSync("/proc/self/fd").map(Number)) if (fd > 2 && isInherited(fd)) closeSync(fd)
  }
  // V8 would place short-lived objects that refer to a request in its old space, and each scavenge would copy the requests.
  if (isService) setFlagsFromString("--no-allocation-site-pretenuring")
  // A reload during the start of a service would end it; the service is about to read its files anyway.
  if (isService && !(isatty(0) && isatty(1))) process.on("SIGHUP", () => {})
  const isBundle = import.meta.url.endsWith(".js")
  const isOutdated = isBundle && isStale(fileURLToPath(new URL("..", import.meta.url)))
  if (isOutdated) {
    console.error("src has changed since the last build and runs in its place, slowly: run `npm run build`")
  }
  // NODE_COMPILE_CACHE and NODE_DISABLE_COMPILE_CACHE go first. The flags, of which each set has a folder, are set before.
  module.enableCompileCache(fileURLToPath(new URL("../node_modules/.cache/muster", import.meta.url)))
  const program = isBundle && !isOutdated ? "./chunks/run.js" : "../src/cli/run.ts"
  void import(new URL(program, import.meta.url).href)
} else {
  console.error(
    `Muster needs Node.js ${OLDEST.join(".")} or later, and this is ${process.versions.node}: install a newer Node.js.`
  )
  process.exitCode = 1
}
