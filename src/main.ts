#!/usr/bin/env node
/**
 * The entry point, of the sources and of their bundle. The code cache beside the packages halves the start of a command.
 * An older Node.js has to link this module: it imports nothing that Node.js 18 lacks.
 */
import { subscribe } from "node:diagnostics_channel"
import { closeSync, readdirSync, readFileSync, readlinkSync } from "node:fs"
import { basename } from "node:path"
import { isatty } from "node:tty"
import { fileURLToPath } from "node:url"
import { setFlagsFromString } from "node:v8"
import { BUILTINS } from "./app/builtins.ts"
import { isStale } from "./app/bundle.ts"
import { codeCache } from "./app/codeCache.ts"
import { STARTED } from "./app/startedChannel.ts"

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
    const flags = /^flags:\s*(\d+)$/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, "latin1"))?.[1]
    return flags !== undefined && (Number.parseInt(flags, 8) & CLOSE_ON_EXEC) === 0
  } catch {
    return false // open for the list only
  }
}

/** Runs the bundle. Node.js has settings for the folder of its compile cache, which apply to this one. */
const loadBundle = (isService: boolean) => {
  const { NODE_COMPILE_CACHE, NODE_DISABLE_COMPILE_CACHE } = process.env
  const beside = fileURLToPath(new URL("../node_modules/.cache/muster", import.meta.url))
  // After the flags, of which each set has a cache of its own.
  const { load, store } = codeCache(NODE_DISABLE_COMPILE_CACHE ? undefined : NODE_COMPILE_CACHE || beside)
  if (!isService) process.on("exit", store)
  else {
    // A service that runs for long forgets the code of its start, and help has little of it.
    subscribe(STARTED, () => {
      const untrusted = store()
      if (untrusted !== undefined)
        console.error(
          `another user can write to ${untrusted}: the code there is not used, and each start takes half as long again; see docs/deployment.md, "Place the code cache"`
        )
      process.on("exit", store)
    })
  }
  load(fileURLToPath(new URL("./chunks/run.cjs", import.meta.url)))
}

if (isSupported()) {
  const isService = ["serve", "node"].includes(process.argv[2] ?? "")
  // The parent may have left files open, and servers must not inherit them. Node marks its own files.
  if (process.platform === "linux") {
    for (const fd of readdirSync("/proc/self/fd").map(Number)) if (fd > 2 && isInherited(fd)) closeSync(fd)
  }
  if (isService) {
    // Before the flags: V8 refuses code that other flags have compiled, and Node.js carries that of its modules. After the
    // files were closed: crypto reads certificates in a thread.
    for (const name of BUILTINS) process.getBuiltinModule(name)
    // V8 would place short-lived objects that refer to a request in its old space, and each scavenge would copy the requests.
    setFlagsFromString("--no-allocation-site-pretenuring")
  }
  // A reload during the start of a service would end it; the service is about to read its files anyway.
  if (isService && !(isatty(0) && isatty(1))) process.on("SIGHUP", () => {})
  const isBundle = import.meta.url.endsWith(".js")
  const isOutdated = isBundle && isStale(fileURLToPath(new URL("..", import.meta.url)))
  if (isOutdated) {
    console.error("src has changed since the last build and runs in its place, slowly: run `npm run build`")
  }
  if (isBundle && !isOutdated) loadBundle(isService)
  else void import(new URL("../src/cli/run.ts", import.meta.url).href)
} else {
  console.error(
    `Muster needs Node.js ${OLDEST.join(".")} or later, and this is ${process.versions.node}: install a newer Node.js.`
  )
  process.exitCode = 1
}
