#!/usr/bin/env node
/**
 * The entry point, of the sources and of their bundle. The compile cache beside the packages halves the start of a command.
 * An older Node.js has to link this module: it imports nothing that Node.js 18 lacks.
 */
import { closeSync, readdirSync, readFileSync } from "node:fs"
import module from "node:module"
import { isatty } from "node:tty"
import { fileURLToPath } from "node:url"
import { setFlagsFromString } from "node:v8"
import { BUILTINS } from "./app/builtins.ts"
import { isStale } from "./app/bundle.ts"

/** The oldest Node.js that runs Muster: major and minor version, as `engines` of package.json has them. */
const OLDEST = [22, 19] as const
const CLOSE_ON_EXEC = 0o2000000

const isSupported = (): boolean => {
  const [major = 0, minor = 0] = process.versions.node.split(".").map(Number)
  return major > OLDEST[0] || (major === OLDEST[0] && minor >= OLDEST[1])
}

const isInheritable = (fd: number): boolean => {
  try {
    const flags = /^flags:\s*(\d+)$/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, "latin1"))?.[1]
    return flags !== undefined && (Number.parseInt(flags, 8) & CLOSE_ON_EXEC) === 0
  } catch {
    return false // open for the list only
  }
}

if (isSupported()) {
  const isService = ["serve", "node"].includes(process.argv[2] ?? "")
  // The parent may have left files open, and servers must not inherit them. Node marks its own files.
  if (process.platform === "linux") {
    for (const fd of readdirSync("/proc/self/fd").map(Number)) if (fd > 2 && isInheritable(fd)) closeSync(fd)
  }
  if (isService) {
    // Before the flags: V8 refuses code that other flags have compiled, and Node.js carries that of its modules. After the
    // files were closed: crypto reads certificates in a thread.
    for (const name of BUILTINS) process.getBuiltinModule(name)
    // V8 would place short-lived objects that refer to a request in its old space, and each scavenge would copy the requests.
    setFlagsFromString("--no-allocation-site-pretenuring")
  }
  // After the flags, of which each set has a cache of its own.
  module.enableCompileCache(fileURLToPath(new URL("../node_modules/.cache/muster", import.meta.url)))
  // A reload during the start of a service would end it; the service is about to read its files anyway.
  if (isService && !(isatty(0) && isatty(1))) process.on("SIGHUP", () => {})
  if (import.meta.url.endsWith(".js") && isStale(fileURLToPath(new URL("..", import.meta.url)))) {
    console.error("src has changed since the last build and runs in its place, slowly: run `npm run build`")
    void import(new URL("../src/cli/run.ts", import.meta.url).href)
  } else void import("./cli/run.ts")
} else {
  console.error(
    `Muster needs Node.js ${OLDEST.join(".")} or later, and this is ${process.versions.node}: install a newer Node.js.`
  )
  process.exitCode = 1
}
