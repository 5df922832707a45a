/** Starts a service in a temporary folder and stops it: the code that V8 compiled for it stays in the cache. */
import { spawn } from "node:child_process"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join, resolve } from "node:path"

/** A start without this cache is only slower: the installation of Muster continues. */
const DEADLINE_MILLIS = 30_000

const root = resolve(import.meta.dirname, "..")

const remove = (folder: string) => {
  try {
    rmSync(folder, { recursive: true, force: true })
  } catch (error) {
    console.error(`${folder} stays: ${error}`)
  }
}

const fill = (folder: string) => {
  const { NODE_COMPILE_CACHE, PATH } = process.env
  const service = spawn(process.execPath, [join(root, "dist/main.js"), "serve"], {
    cwd: root,
    env: {
      PATH,
      ...(NODE_COMPILE_CACHE === undefined ? {} : { NODE_COMPILE_CACHE }),
      MUSTER_DATA_DIR: join(folder, "data"),
      MUSTER_HOST: "127.0.0.1",
      MUSTER_PORT: "0"
    },
    stdio: ["ignore", "pipe", "ignore"],
    timeout: DEADLINE_MILLIS,
    killSignal: "SIGKILL"
  })
  let output = ""
  service.stdout?.on("data", (text: Buffer) => {
    output += text.toString()
    if (output.includes("All routes:")) service.kill("SIGTERM")
  })
  service.once("error", (error) => console.error(`the first start will be slower: ${error.message}`))
  service.once("close", () => remove(folder))
}

try {
  fill(mkdtempSync(join(tmpdir(), "muster-code-cache-")))
} catch (error) {
  console.error(`the first start will be slower: ${error}`)
}
